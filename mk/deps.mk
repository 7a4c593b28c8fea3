# What is not in the repository and not a Debian package: yyjson's two files (the Rust text library: rust.mk).
# DEPS_CACHE names a folder to copy from instead of fetching: $(DEPS_CACHE)/yyjson/yyjson.[ch].

# The program and its tests link these beside the objects of src/.
DEP_OBJS = $(BUILD)/deps/yyjson/yyjson.o
$(BUILD)/quire $(TESTER): $(DEP_OBJS)

# yyjson 0.10.0 (MIT) is carried by this source distribution. pip must prepare metadata even to download one,
# which needs a newer setuptools than Debian 12 has: pip's own build isolation brings it. Three tries, because
# a package index sometimes stalls.
YYJSON_DIST = yyjson==4.0.6
YYJSON_SUM_C = 26e50ca6a9a08d88b15ed7a47c144e29766216d134cad3a016de6163c5bb224d
YYJSON_SUM_H = 1d63b4e449f5b24116afab40b8f1b79f2703d5905aa8ab4ca46c97b7e513ba04
PYTHON     ?= python3

$(BUILD)/deps/yyjson/yyjson.c $(BUILD)/deps/yyjson/yyjson.h &: | $(BUILD)/.setup
	@set -e; part=$(BUILD)/deps/yyjson.part; rm -rf "$$part"; mkdir -p "$$part"; \
	if [ -n "$(DEPS_CACHE)" ]; then cp "$(DEPS_CACHE)"/yyjson/yyjson.[ch] "$$part"; else \
	    echo "fetching $(YYJSON_DIST)"; $(PYTHON) -m venv "$$part/venv"; \
	    for try in 1 2 3; do \
	        timeout 120 "$$part/venv/bin/python" -m pip --disable-pip-version-check download -q --no-deps \
	            --no-binary yyjson -d "$$part" $(YYJSON_DIST) </dev/null && break; \
	        [ $$try -lt 3 ] || { echo "make: cannot fetch $(YYJSON_DIST) with pip" >&2; exit 1; }; \
	    done; \
	    tar --no-same-owner -xmzf "$$part"/yyjson-*.tar.gz -C "$$part" --strip-components=2 \
	        --wildcards '*/yyjson/yyjson.[ch]'; \
	    rm -rf "$$part/venv" "$$part"/*.tar.gz; \
	fi; \
	printf '%s *%s\n' $(YYJSON_SUM_C) "$$part/yyjson.c" $(YYJSON_SUM_H) "$$part/yyjson.h" | \
	    sha256sum --quiet --check -; \
	touch "$$part"/yyjson.[ch]; rm -rf $(BUILD)/deps/yyjson; mv "$$part" $(BUILD)/deps/yyjson

# Foreign code: its warnings are not ours to fix. Without the non-standard extensions it can only be strict.
$(BUILD)/deps/yyjson/yyjson.o: $(BUILD)/deps/yyjson/yyjson.c $(BUILD)/deps/yyjson/yyjson.h
	$(CC) -std=gnu11 -O2 -g $(SAN) -w -DYYJSON_DISABLE_NON_STANDARD=1 -DYYJSON_DISABLE_UTILS=1 -c -o $@ $<

$(BUILD)/obj/src/base/json.o: | $(BUILD)/deps/yyjson/yyjson.h
