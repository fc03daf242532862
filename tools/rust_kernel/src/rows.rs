//! Rows of a snapshot, read and written.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use delta_kernel::actions::deletion_vector_writer::{
    KernelDeletionVector, StreamingDeletionVectorWriter,
};
use delta_kernel::arrow::array::{AsArray, Int32Array, RecordBatch};
use delta_kernel::arrow::datatypes::Int32Type;
use delta_kernel::committer::Committer;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::scan::state::ScanFile;
use delta_kernel::schema::{DataType, StructField};
use delta_kernel::transaction::{CommitResult, UpdateTableOperation};
use delta_kernel::{Engine as _, EngineData, FileMeta, SnapshotRef};
use tokio::runtime::Handle;

use crate::catalog::Engine;
use crate::Answer;

const ENGINE: &str = "rust-kernel/0.1";

/// The ids in a table, in no order.
pub fn read(engine: &Arc<Engine>, snapshot: SnapshotRef) -> Answer<Vec<i32>> {
    let scan = snapshot.scan_builder().build()?;
    let mut found = Vec::new();
    for data in scan.execute(engine.clone())? {
        found.extend(ids_of(data?)?);
    }
    Ok(found)
}

fn ids_of(data: Box<dyn EngineData>) -> Answer<Vec<i32>> {
    let batch: RecordBatch = ArrowEngineData::try_from_engine_data(data)?.into();
    let column = batch.column_by_name("id").ok_or("the table has no column id")?;
    Ok(column.as_primitive::<Int32Type>().values().to_vec())
}

/// Appends rows.
pub fn append(
    engine: &Arc<Engine>,
    snapshot: SnapshotRef,
    committer: Box<dyn Committer>,
    ids: &[i32],
) -> Answer<CommitResult> {
    let mut transaction = snapshot
        .update_table(UpdateTableOperation::Write, ENGINE, true)
        .with_blind_append()
        .build(engine.as_ref(), committer)?;
    let context = transaction.write_state()?.write_context_builder().build()?;
    let column = Arc::new(Int32Array::from(ids.to_vec()));
    let batch = RecordBatch::try_from_iter([("id", column as _)])?;
    let data = ArrowEngineData::new(batch);
    let added = Handle::current().block_on(engine.write_parquet(&data, &context))?;
    transaction.add_files(added);
    Ok(transaction.commit(engine.as_ref())?)
}

/// Deletes the rows with these ids by deletion vectors.
pub fn delete(
    engine: &Arc<Engine>,
    snapshot: SnapshotRef,
    committer: Box<dyn Committer>,
    ids: &[i32],
) -> Answer<CommitResult> {
    let scan = snapshot.clone().scan_builder().build()?;
    let listed: Vec<_> = scan.scan_metadata(engine.as_ref())?.collect::<Result<_, _>>()?;
    let mut transaction = snapshot
        .clone()
        .update_table(UpdateTableOperation::Delete, ENGINE, true)
        .build(engine.as_ref(), committer)?;
    let context = transaction.write_state()?.write_context_builder().build()?;
    let mut vectors = HashMap::new();
    for found in &listed {
        for file in found.visit_scan_files(Vec::new(), |all: &mut Vec<ScanFile>, one| all.push(one))? {
            let path = file.path.clone();
            let Some(positions) = deleted(engine, &snapshot, file, ids)? else {
                continue;
            };
            let mut vector = KernelDeletionVector::new();
            vector.add_deleted_row_indexes(positions);
            let place = context.new_deletion_vector_path(String::new());
            let mut bytes = Vec::new();
            let mut writer = StreamingDeletionVectorWriter::new(&mut bytes);
            let written = writer.write_deletion_vector(vector)?;
            writer.finalize()?;
            let target = place.absolute_path()?.to_file_path();
            std::fs::write(target.map_err(|()| "the table isn't on this machine")?, bytes)?;
            vectors.insert(path, written.to_descriptor(&place));
        }
    }
    transaction.update_deletion_vectors(vectors, listed.into_iter().map(|one| Ok(one.scan_files)))?;
    Ok(transaction.commit(engine.as_ref())?)
}

/// The positions of a file's deleted rows, those with the ids added; None where it has none of them.
fn deleted(
    engine: &Arc<Engine>,
    snapshot: &SnapshotRef,
    file: ScanFile,
    ids: &[i32],
) -> Answer<Option<HashSet<u64>>> {
    let root = snapshot.table_root();
    let meta = FileMeta {
        location: root.join(&file.path)?,
        last_modified: file.modification_time,
        size: file.size.try_into()?,
    };
    let before = file.dv_info.get_row_indexes(engine.as_ref(), root)?.unwrap_or_default();
    let mut positions: HashSet<u64> = before.into_iter().collect();
    let (kept, mut at) = (positions.len(), 0);
    let batches =
        engine.parquet_handler().read_parquet_files(&[meta], snapshot.schema(), None)?;
    for batch in batches {
        for id in ids_of(batch?)? {
            if ids.contains(&id) {
                positions.insert(at);
            }
            at += 1;
        }
    }
    Ok((positions.len() > kept).then_some(positions))
}

/// Adds a column to the table's definition.
pub fn add_column(
    engine: &Arc<Engine>,
    snapshot: SnapshotRef,
    committer: Box<dyn Committer>,
    column: &str,
) -> Answer<CommitResult> {
    let transaction = snapshot
        .update_table(UpdateTableOperation::AlterTable, ENGINE, false)
        .add_column(StructField::nullable(column, DataType::INTEGER))
        .build(engine.as_ref(), committer)?;
    Ok(transaction.commit(engine.as_ref())?)
}
