# For scripts that source this file at the root: `gate`, the packages and features that the gate checks and tests. All of the library's features, but not
# `mpi` of hotrow-dist, which needs an installation of MPI. One list, so that every dependency is compiled once.
# wgsl-lanes is no default member: with it, `cargo run` would compile wgpu with another feature than the command has alone.
gate=(-p hotrow -p hotrow-cli -p hotrow-dist -p hotrow-plan -p hotrow-report -p wgsl-lanes --features "$(sed -n '/^\[features\]/,/^\[dep/s/^\([a-z0-9_-]*\) = .*/hotrow\/\1/p' Cargo.toml | paste -sd, -)")
