//! The catalog: tables by their names, and the committers that ask it for commits.

use std::sync::Arc;

use delta_kernel::committer::Committer;
use delta_kernel::object_store::local::LocalFileSystem;
use delta_kernel::schema::{DataType, StructField, StructType};
use delta_kernel::transaction::create_table::create_table;
use delta_kernel::{Snapshot, SnapshotRef};
use delta_kernel_default_engine::executor::tokio::TokioMultiThreadExecutor;
use delta_kernel_default_engine::{DefaultEngine, DefaultEngineBuilder};
use delta_kernel_unity_catalog::{
    build_uc_create_table_request, get_required_properties_for_disk,
    snapshot_builder_from_load_table, UCCommitter,
};
use tokio::runtime::Handle;
use unity_catalog_delta_rest_client::{
    api, ClientConfig, CreateStagingTableRequest, LoadTableResponse, TableIdentifier,
    UCDeltaTableClient, UCUpdateTableRestClient, UpdateTableClient, UpdateTableRequest,
};
use url::Url;

use crate::{version_of, Answer};

const SCHEMA: &str = "default";
const ENGINE: &str = "rust-kernel/0.1";

pub type Engine = DefaultEngine<TokioMultiThreadExecutor>;

pub struct Catalog {
    pub engine: Arc<Engine>,
    tables: UCDeltaTableClient,
    commits: Arc<UCUpdateTableRestClient>,
    name: String,
    runtime: Handle,
}

impl Catalog {
    pub fn new(uri: &str, token: &str, name: &str, runtime: Handle) -> Answer<Self> {
        let config = ClientConfig::build(uri, token).build()?;
        let executor = Arc::new(TokioMultiThreadExecutor::new(runtime.clone()));
        let store = Arc::new(LocalFileSystem::new());
        Ok(Self {
            engine: Arc::new(DefaultEngineBuilder::new(store).with_task_executor(executor).build()),
            tables: UCDeltaTableClient::new(config.clone())?,
            commits: Arc::new(UCUpdateTableRestClient::new(config)?),
            name: name.to_string(),
            runtime,
        })
    }

    fn told(&self, table: &str) -> Answer<LoadTableResponse> {
        let asked = self.tables.load_table(&self.name, SCHEMA, table);
        Ok(self.runtime.block_on(asked)?)
    }

    /// The table as it is now, commits included that nobody published yet.
    pub fn latest(&self, table: &str) -> Answer<SnapshotRef> {
        Ok(snapshot_builder_from_load_table(&self.told(table)?)?.build(self.engine.as_ref())?)
    }

    /// The table as it is now, all of it published.
    pub fn published(&self, table: &str) -> Answer<SnapshotRef> {
        let committer = self.committer(table)?;
        Ok(self.latest(table)?.publish(self.engine.as_ref(), committer.as_ref())?)
    }

    fn named(&self, table: &str) -> TableIdentifier {
        TableIdentifier::new(&self.name, SCHEMA, table)
    }

    /// What asks the catalog for a table's commits.
    pub fn committer(&self, table: &str) -> Answer<Box<dyn Committer>> {
        let id = self.told(table)?.metadata.table_uuid;
        Ok(Box::new(UCCommitter::new(self.commits.clone(), id, self.named(table))))
    }

    /// One that calls `staged` instead of asking, and stops there.
    pub fn committer_that_stops(
        &self,
        table: &str,
        staged: fn(),
    ) -> Answer<Box<dyn Committer>> {
        let id = self.told(table)?.metadata.table_uuid;
        Ok(Box::new(UCCommitter::new(Arc::new(Stopping(staged)), id, self.named(table))))
    }

    /// Makes a table; its version.
    pub fn create(&self, table: &str) -> Answer<u64> {
        let engine = self.engine.as_ref();
        let asked = CreateStagingTableRequest { name: table.to_string() };
        let place = self
            .runtime
            .block_on(self.tables.create_staging_table(&self.name, SCHEMA, asked))?;
        let mut root = Url::parse(&place.location)?;
        if !root.path().ends_with('/') {
            root.set_path(&format!("{}/", root.path()));
        }
        if let Ok(folder) = root.to_file_path() {
            std::fs::create_dir_all(folder)?; // Kernel lists it first
        }
        let columns = StructType::try_new([StructField::nullable("id", DataType::INTEGER)])?;
        let committer =
            UCCommitter::new(self.commits.clone(), place.table_id.clone(), self.named(table));
        let mut properties = get_required_properties_for_disk(&place.table_id);
        // Kernel takes few properties of Delta's own, and writes those that a catalog needs.
        let own = place.required_properties.into_iter().filter(|(key, _)| !key.starts_with("delta."));
        properties.extend(own.filter_map(|(key, text)| Some((key, text?))));
        let done = create_table(root.as_str(), Arc::new(columns), ENGINE, true)
            .with_table_properties(properties)
            .build(engine, Box::new(committer))?
            .commit(engine)?;
        let version = version_of(done)?;
        let snapshot = Snapshot::builder_for(root).with_max_catalog_version(0).build(engine)?;
        let request = build_uc_create_table_request(&snapshot, engine, table)?;
        self.runtime.block_on(self.tables.create_table(&self.name, SCHEMA, request))?;
        Ok(version)
    }
}

/// A client of the catalog that never asks it.
#[derive(Debug)]
struct Stopping(fn());

impl UpdateTableClient for Stopping {
    async fn update_table(
        &self,
        _target: &TableIdentifier,
        _request: UpdateTableRequest,
    ) -> api::Result<()> {
        (self.0)();
        std::future::pending().await
    }
}
