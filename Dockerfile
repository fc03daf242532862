# An image of txlake: `txlake serve`, `console`, `mcp` and `sql`, for a user without privileges.
# docs/operations.md, "In containers", has how it is run.

FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/txlake \
    && /opt/txlake/bin/python -m pip install --no-cache-dir --constraint requirements.lock \
        ".[console,flight,mcp,openlineage,otel,postgresql,server]" \
    && /opt/txlake/bin/python -m pip uninstall --yes pip setuptools

FROM python:3.11-slim-bookworm
# Debian serves one version of each package and removes it with the next: no exact version lasts.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home txlake \
    && install --directory --owner=txlake --group=txlake /data
COPY --from=build /opt/txlake /opt/txlake
ENV PATH=/opt/txlake/bin:$PATH \
    PYSPARK_PYTHON=/opt/txlake/bin/python \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/txlake
VOLUME /data
EXPOSE 8080 8081 8085 8090
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["tini", "--", "txlake"]
CMD ["serve", "/data", "--host", "0.0.0.0", "--token-file", "/run/secrets/tokens"]
