"""What Delta Spark needs beside other processes on a local disk: a commit that never overwrites.

Its own (`HDFSLogStore`, Delta Spark 4.4.0) renames by Hadoop's FileContext, which is one step on
HDFS and two on a local disk, a look and a rename: what another process commits between the two is
overwritten, and its rows are lost. delta-rs and txlake commit by a hard link, which fails when the
name is taken. This makes Delta Spark do the same, so that a row lost here is an engine's fault.
"""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.delta_spark import JARS

SETTINGS = {"spark.delta.logStore.file.impl": "linking.LinkingLogStore"}
_SOURCE = """
package linking;

import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

public class LinkingLogStore extends io.delta.storage.HDFSLogStore {
    public LinkingLogStore(Configuration conf) {
        super(conf);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf)
            throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, conf);
            return;
        }
        java.nio.file.Path target = new java.io.File(path.toUri().getPath()).toPath();
        java.nio.file.Path written = target.resolveSibling("." + UUID.randomUUID() + ".tmp");
        Writer writer = Files.newBufferedWriter(written, StandardCharsets.UTF_8, new OpenOption[0]);
        try {
            while (actions.hasNext()) {
                writer.write((String) actions.next());
                writer.write("\\n");
            }
        } finally {
            writer.close();
        }
        try {
            Files.createLink(target, written);
        } finally {
            Files.delete(written);
        }
    }
}
"""


def jar(jars: Sequence[str]) -> str:
    """The path of a jar with it, in .cache, made by the compiler that Spark brings along.

    Made once; `jars` are Delta Spark's.
    """
    folder = JARS.parent / "linking"
    made = folder / f"{hashlib.sha256(_SOURCE.encode()).hexdigest()[:16]}.jar"
    if made.exists():
        return str(made)
    folder.mkdir(parents=True, exist_ok=True)
    classes = _compiled(jars)
    with (
        tempfile.NamedTemporaryFile(dir=folder, delete=False) as file,
        zipfile.ZipFile(file, "w") as archive,
    ):
        for name, code in classes.items():
            archive.writestr(f"{name.replace('.', '/')}.class", code)
    Path(file.name).rename(made)
    return str(made)


def _compiled(jars: Sequence[str]) -> dict[str, bytes]:
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    try:
        jvm = gateway.jvm
        urls = gateway.new_array(jvm.java.net.URL, len(jars))
        for number, path in enumerate(jars):
            urls[number] = jvm.java.io.File(path).toURI().toURL()
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.net.URLClassLoader(urls))
        compiler.cook(_SOURCE)
        return dict(compiler.getBytecodes())
    finally:
        gateway.shutdown()
