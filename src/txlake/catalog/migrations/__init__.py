"""The steps from one version of the catalog's schema to the next, run by Alembic."""
