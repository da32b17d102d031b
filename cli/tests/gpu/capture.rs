//! A captured step is replayed on the device of the tests; spoiled captures are refused by name.

use crate::common::command::{ended, hotrow, read};
use crate::common::plan::words;
use hotrow_harness::{device::with_gpu, lanes::known::ORDERED};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Changes the words of a binding's file after the dispatch, in a file of another name.
fn change(folder: &Path, bound: &mut Value, change: impl FnOnce(&mut [u32])) {
    let file = |stem: &str| folder.join("step/buffers").join(stem).with_extension("bin");
    let mut words: Vec<u32> = bytemuck::pod_collect_to_vec(&fs::read(file(bound["after"].as_str().unwrap())).unwrap());
    change(&mut words);
    bound["after"] = format!("changed-{}", bound["name"].as_str().unwrap()).into();
    fs::write(file(bound["after"].as_str().unwrap()), bytemuck::cast_slice(&words)).unwrap();
}

fn read_text(stem: &Path, ending: &str) -> String {
    fs::read_to_string(stem.with_extension(ending)).unwrap()
}

#[test]
fn a_capture_is_replayed_and_a_spoiled_one_is_refused() {
    with_gpu(|_| {
        let folder = tempfile::tempdir().unwrap();
        let run = |line: &str, code| {
            ended(hotrow(&words(&format!("bench {line} --backend gpu"))).current_dir(folder.path()), code)
        };
        // More misses than a block of the sort has.
        run("capture step --trace zipf:rows=9000,s=0.5,n=8000 --lookups 4 --batch 1000 --warm 1 --dim 8", 0);
        let path = folder.path().join("step/index.json");
        let whole = read(&path);
        let replay = |index: &Value, code| {
            fs::write(&path, index.to_string()).unwrap();
            run("replay step", code)
        };
        let at = |index: &Value, kernel: &str, name: &str| {
            let dispatch =
                index["dispatches"].as_array().unwrap().iter().position(|one| one["kernel"] == kernel).unwrap();
            let all = index["dispatches"][dispatch]["bindings"].as_array().unwrap();
            (
                dispatch,
                format!("/dispatches/{dispatch}/bindings/{}", all.iter().position(|one| one["name"] == name).unwrap()),
            )
        };
        // The other languages have the entry point, and the constants are the group's.
        let (gather, _) = at(&whole, "gather", "outputs");
        assert_eq!(whole["dispatches"][gather]["constants"]["width"], 4);
        let text = folder.path().join("step/texts").join(whole["dispatches"][gather]["text"].as_str().unwrap());
        assert!(
            read_text(&text, "metal").contains("kernel void main_(") && read_text(&text, "hlsl").contains("void main(")
        );
        assert_eq!(fs::read(text.with_extension("spv")).unwrap()[..4], 0x0723_0203_u32.to_le_bytes());
        // Lists of free order are those that the lane executor knows.
        for dispatch in whole["dispatches"].as_array().unwrap() {
            let free = |bound: &&Value| !(bound["pairs"].is_null() && bound["sums"].is_null());
            let found = dispatch["bindings"].as_array().unwrap().iter().filter(free).map(|bound| &bound["name"]);
            let known = ORDERED.iter().filter(|one| dispatch["kernel"] == one.kernel && one.binding != "records");
            assert!(found.eq(known.map(|one| one.binding)), "{dispatch}");
        }

        // Another order of the pairs is as right, and so are other parts of a sum.
        let mut index = whole.clone();
        let ((probe, misses), (_, digits)) = (at(&whole, "probe", "misses"), at(&whole, "probe", "miss_digits"));
        let second = whole.pointer(&misses).unwrap()["pairs"][1].as_u64().unwrap() as usize;
        change(folder.path(), index.pointer_mut(&misses).unwrap(), |words| {
            words.swap(0, 1);
            words.swap(second, second + 1);
        });
        let of = whole.pointer(&digits).unwrap()["sums"].as_u64().unwrap() as usize;
        assert!(of > 1);
        change(folder.path(), index.pointer_mut(&digits).unwrap(), |words| {
            let some = words.chunks_mut(of).find(|part| part[0] > 0).unwrap();
            (some[0], some[1]) = (some[0] - 1, some[1] + 1);
        });
        assert!(replay(&index, 0).0.contains("left the captured bits in "));

        // Keys in another order than their indices, a word, and a text are noticed, each at its place.
        change(folder.path(), index.pointer_mut(&misses).unwrap(), |words| words.swap(0, 1));
        let (update, rows) = at(&whole, "update", "cache");
        change(folder.path(), index.pointer_mut(&rows).unwrap(), |words| words[3] ^= 1);
        let (heads, _) = at(&whole, "heads", "heads");
        let text = whole["dispatches"][heads]["text"].as_str().unwrap();
        let text = folder.path().join("step/texts").join(text).with_extension("wgsl");
        let kept = fs::read_to_string(&text).unwrap();
        let spoiled = kept.replace("run(group, groups, Lane(index));", "");
        assert!(spoiled != kept);
        fs::write(&text, spoiled).unwrap();
        let (out, err) = replay(&index, 1);
        for place in [
            format!("dispatch {probe} (probe), misses, word "),
            format!("dispatch {update} (update), cache, word 3: wanted 0x"),
            format!("dispatch {heads} (heads), heads, word "),
        ] {
            assert!(out.contains(&place), "{place}: {out}");
        }
        assert!(err.contains(&format!("found {} that differ", out.lines().count())), "{err}");
        fs::write(&text, "no WGSL").unwrap();
        let (_, err) = replay(&whole, 1);
        assert!(err.contains(&format!("dispatch {heads} (heads): heads: wanted a driver that compiles")), "{err}");
        fs::write(&text, kept).unwrap();

        let set = |place: &str, to: Value| {
            let mut index = whole.clone();
            *index.pointer_mut(place).unwrap() = to;
            index
        };
        for (index, found) in [
            (set("/dispatches", serde_json::json!([])), "wanted the index of a capture, found no dispatch"),
            (set("/dispatches/0/grid", serde_json::json!([0, 1])), "dispatch 0 (linearize): wanted a grid of 1 to"),
            (set("/dispatches/0/grid", serde_json::json!([1, 70_000])), "workgroups a side, found [1, 70000]"),
            (set("/dispatches", Value::Null), "wanted the index of a capture, found invalid type: null"),
            (
                set("/dispatches/0/bindings/0/before", "none".into()),
                "dispatch 0 (linearize): params: wanted buffers/none.bin, found No such",
            ),
            (
                set("/dispatches/0/bindings/0/before", "../index".into()),
                "wanted letters and digits as the name of a file in buffers",
            ),
            (
                set("/dispatches/0/bindings/0/bytes", 236.into()),
                "dispatch 0 (linearize): params: wanted 236 bytes in buffers/",
            ),
            (
                set("/dispatches/0/bindings/0/kind", "read".into()),
                "dispatch 0 (linearize): wanted this version's bindings",
            ),
            (set("/dispatches/0/kernel", "lineups".into()), "dispatch 0 (lineups): wanted a kernel of this version"),
            (
                set(&format!("{misses}/pairs"), serde_json::json!([9, u64::MAX])),
                "misses: wanted its whole list, found fewer words",
            ),
        ] {
            let (_, err) = replay(&index, 1);
            assert!(err.contains(found), "{found}: {err}");
        }
        let (_, err) = run("capture step", 2);
        assert!(err.contains("step: wanted a new or an empty folder, found something there; name another"), "{err}");
        fs::remove_file(&path).unwrap();
        let (_, err) = run("replay step", 1);
        assert!(err.contains("index.json: wanted the index of a capture, found No such file"), "{err}");
    });
}
