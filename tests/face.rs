//! Traits that the public types implement.

fn shared_between_threads<T: Send + Sync>() {}

/// A trainer may move a group to another thread, and threads may share a group behind a lock. The list, of the types that hold a device's handles, memory
/// of their own or a caller's functions, passes if it compiles. It is kept by hand, since the source alone does not tell what a type holds.
#[test]
fn public_types_are_send_and_sync() {
    shared_between_threads::<hotrow::Context>();
    shared_between_threads::<hotrow::Group>();
    shared_between_threads::<hotrow::SharedGroup>();
    shared_between_threads::<hotrow::CpuGroup>();
    shared_between_threads::<hotrow::CpuSharedGroup>();
    shared_between_threads::<hotrow::Batch>();
    shared_between_threads::<hotrow::FloatBuffer>();
    shared_between_threads::<hotrow::Reader>();
    shared_between_threads::<hotrow::RowReader>();
    shared_between_threads::<hotrow::Feedback>();
    shared_between_threads::<hotrow::Scaler>();
    shared_between_threads::<hotrow::CpuScaler>();
    shared_between_threads::<hotrow::Sorter>();
    shared_between_threads::<hotrow::Grid>();
    shared_between_threads::<hotrow::CpuGrid>();
    shared_between_threads::<hotrow_plan::simulate::Simulator>();
    shared_between_threads::<hotrow::Timeline>();
    shared_between_threads::<hotrow::SharedStore>();
    #[cfg(feature = "file")]
    shared_between_threads::<hotrow::FileStore>();
    shared_between_threads::<hotrow_dist::Threads>();
    shared_between_threads::<hotrow::Error>();
}

/// What another program can name. Each type and method is one more thing to learn, and to keep: an issue that adds some raises the numbers by those it names.
#[test]
fn the_public_face_is_small() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let face = hotrow_harness::exports::of_folder(&folder, &["internals", "ranks", "mpi"]);
    let (types, methods) = (face.types.len(), face.methods.len());
    assert!(face.methods.contains("Lookup::forward") && face.methods.contains("cpu::cached::group::CpuGroup::new"));
    assert!(
        types <= 70 && methods <= 224,
        "wanted 70 types and traits, 224 methods, found {types}, {methods}: {face:#?}"
    );
}

/// Programs for readers show what any program may call: they use nothing of `internals`.
#[test]
fn examples_use_nothing_internal() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let uses = |text: &str| text.contains("hotrow::internals") || text.contains("\n    internals::");
    let mut seen = 0;
    for folder in ["examples", "viewers", "python/src", "web/src"] {
        for file in hotrow_harness::modules::files(&root.join(folder), &|path| path.ends_with("target")) {
            if file.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&file).unwrap();
                assert!(!uses(&text), "{}: wanted what docs.rs shows, found `internals`", file.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 15 && uses("use hotrow::internals::rng;"), "{seen} files");
}

#[test]
fn what_is_hidden_or_private_is_no_part_of_the_face() {
    let root = "mod inner; pub use inner::{Named, Way as Renamed, Open}; #[cfg(feature = \"off\")] pub struct Off; #[doc(hidden)] pub struct Hidden;";
    let inner = "pub struct Body; pub type Named = Body; impl Body { pub fn call(&self) {} fn own(&self) {} #[doc(hidden)] pub fn bare() {} }
        pub enum Way {} impl Way { #[cfg(feature = \"off\")] pub fn off() {} } pub trait Open { fn asked(); fn given() {} } pub struct Kept;";
    let files = [(vec![], root), (vec!["inner".to_owned()], inner)];
    let files = files.map(|(module, text)| (module, text.to_owned())).into();
    let face = hotrow_harness::exports::face(&files, &["off"]);
    let of = |names: &std::collections::BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(of(&face.types), "inner::Named inner::Open inner::Way");
    assert_eq!(of(&face.methods), "Open::asked Open::given inner::Body::call");
    let whole = hotrow_harness::exports::face(&files, &[]);
    assert_eq!((whole.types.len(), whole.methods.len()), (4, 4));
}
