# The Rust half of src/text: one static library, built by Cargo at the versions of its lock file.
# RUST_BUILD is Cargo's target folder; builds that differ in C flags only may share one.
RUST_BUILD ?= $(BUILD)/rust
RUSTLIB     = $(RUST_BUILD)/release/libquire_text.a
CARGO      ?= cargo

# Cargo leaves an up-to-date library untouched, so the rule gives it a new time itself.
$(RUSTLIB): src/text/rs/Cargo.toml src/text/rs/Cargo.lock $(wildcard src/text/rs/src/*.rs) | $(BUILD)/.setup
	CARGO_TARGET_DIR="$(RUST_BUILD)" $(CARGO) build --release --locked --manifest-path src/text/rs/Cargo.toml
	@touch $@
