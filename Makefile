# unmask: GNU make, pkg-config and a C11 compiler. `make help` lists the targets.
#
# Sections: settings, products, rules, demonstration and tests, installation, tools. Wildcards find the sources: src/cli
# and src/server are the program, all other folders of src are the library, each tests/*/*_test.c is a test program.

# ---- Settings ----------------------------------------------------------------------------------------------------- #

ifeq ($(origin CC),default)
CC := gcc
endif
CFLAGS ?= -O2 -g
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
PROMPT ?= A book has 110 pages. Hana reads 12 pages a day for 8 days. How many pages are left?
FUZZ_SECONDS ?= 600
FUZZ_SEED ?= 0
SOAK_SECONDS ?= 600
# The parts of `soak`, all of them by default: SOAK_PARTS='ray verify'
SOAK_PARTS ?=
# Options of bench/cuda_table.py for `bench-cuda`: CUDA_TABLE_OPTIONS='--tensor-parallel-size 4'
CUDA_TABLE_OPTIONS ?=
# The tests that `check` runs, as patterns below tests/: TESTS='unit/base_* engine/*'
TESTS ?= */*
# Sanitizers: SAN=address,undefined or SAN=thread. Their objects have a build folder of their own.
SAN ?=
comma := ,
BUILD ?= build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))

VERSION := $(shell sed -n 's/^.define UM_VERSION_[A-Z]* //p' include/unmask.h | paste -sd.)
SONAME := libunmask.so.$(firstword $(subst ., ,$(VERSION)))

# CUDA=1 also builds the backend for NVIDIA GPUs, libunmask-cuda.so, with nvcc 12.4 or newer. CUDA_ARCHS lists the
# architectures with machine code; newer GPUs compile the intermediate code (PTX) of CUDA_PTX when they load it.
CUDA ?=
NVCC ?= nvcc
CUDA_ARCHS ?= 80 90a
CUDA_PTX ?= 90
# Code for 8.x lacks the waits that the launches on newer GPUs rely on.
ifneq ($(filter 80 86 87 88 89,$(CUDA_PTX)),)
$(error CUDA_PTX=$(CUDA_PTX): expected 90 or newer; GPUs of 8.x run the machine code of CUDA_ARCHS)
endif
# The folder of the objects and products of nvcc. `make cuda-compile`, which `make check` runs where nvcc is installed,
# compiles all CUDA code once, for CUDA_CHECK_ARCH, in a folder of its own.
CUDA_BUILD ?= $(BUILD)
CUDA_CHECK_ARCH ?= 90a

# Uses all cores by default.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
MAKEFLAGS += --no-print-directory --no-builtin-rules

PACKAGES := jansson libpcre2-8 libutf8proc yaml-0.1
# Libraries of which only headers are used.
HEADER_PACKAGES := libxxhash
# Further libraries of the program, for its server.
SERVER_PACKAGES := libevent_core libzmq libsodium
# Edits lines in `unmask chat`. Optional: `make LIBEDIT=` builds without it.
LIBEDIT ?= $(shell pkg-config --exists libedit 2>/dev/null && echo libedit)
# Decode compressed request bodies. Optional: `make ZLIB= ZSTD=` builds without them.
ZLIB ?= $(shell pkg-config --exists zlib 2>/dev/null && echo zlib)
ZSTD ?= $(shell pkg-config --exists libzstd 2>/dev/null && echo libzstd)
LIBS := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) -lpthread -ldl -lm
# The libraries of a program that links libunmask.a.
STATIC_LIBS := $(shell pkg-config --static --libs $(PACKAGES) 2>/dev/null) -lpthread -ldl -lm
SERVER_LIBS := $(shell pkg-config --libs $(SERVER_PACKAGES) $(LIBEDIT) $(ZLIB) $(ZSTD) 2>/dev/null)
SAN_FLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
# The sources expect a signed `char`. On ARM it is unsigned by default.
UM_CFLAGS := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -fsigned-char -fPIC -fvisibility=hidden -DUM_BUILD -Iinclude -Isrc \
             -I$(BUILD)/gen $(shell pkg-config --cflags $(PACKAGES) $(HEADER_PACKAGES) $(SERVER_PACKAGES) 2>/dev/null) $(SAN_FLAGS)
$(BUILD)/src/cli/line_editor.o: UM_CFLAGS += $(if $(LIBEDIT),-DUM_LIBEDIT $(shell pkg-config --cflags libedit))
$(BUILD)/src/server/http/coding.o: UM_CFLAGS += $(if $(ZLIB),-DUM_ZLIB) $(if $(ZSTD),-DUM_ZSTD) $(if $(ZLIB)$(ZSTD),$(shell pkg-config --cflags $(ZLIB) $(ZSTD)))
COMPILE = $(CC) $(UM_CFLAGS) $(CPPFLAGS) $(CFLAGS) -MMD -MP
# V=1 shows the commands.
Q := $(if $(V),,@)
say = @$(if $(V),:,printf '  %-5s %s\n' $(1) $@)
LINK = $(CC) $(SAN_FLAGS) $(CFLAGS) $(LDFLAGS)

# ---- Products ----------------------------------------------------------------------------------------------------- #

objects = $(patsubst %.c,$(BUILD)/%.o,$(1))

CLI_SRC := $(sort $(wildcard src/cli/*.c))
SERVER_SRC := $(sort $(wildcard src/server/*.c src/server/*/*.c))
LIB_SRC := $(filter-out $(CLI_SRC) $(SERVER_SRC),$(sort $(wildcard src/*/*.c src/*/*/*.c)))
TEST_SRC := $(sort $(wildcard $(TESTS:%=tests/%_test.c)))
TEST_SUPPORT_SRC := $(sort $(wildcard tests/*.c))
# The scripts of tests/soak take too long for `make check`; `make soak` runs them.
TEST_SCRIPTS := $(filter-out tests/soak/%,$(sort $(wildcard $(TESTS:%=tests/%.sh))))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/*_fuzz.c))
EXAMPLE_SRC := $(sort $(wildcard examples/*.c))
EXTENDING_SRC := $(sort $(wildcard examples/extending/*.c))
FAMILY_SRC := $(sort $(filter-out %_test.c,$(wildcard tests/families/*.c)))
CHECKPOINT_SRC := $(sort $(wildcard tools/checkpoints/*.c))
# `make extended` links the sources of the folder ROWS in front of the library. Their tables replace the library's
# tables (docs/extending.md).
ROWS ?= examples/extending
ROWS_SRC := $(sort $(wildcard $(ROWS)/*.c))
CUDA_SRC := $(sort $(wildcard src/cuda/*.cu))
CUDA_CHECK_SRC := $(sort $(wildcard tests/cuda/*.cu))
FORMATTED := $(wildcard include/*.h src/cuda/*.cu* tests/cuda/*.cu* src/*/*.[ch] src/*/*/*.[ch] tests/*.[ch] tests/*/*.[ch] examples/*.[ch] examples/*/*.[ch] bench/*.[ch] tools/*/*.[ch] packaging/*.[ch])

TEST_PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(TEST_SRC))
# tests/engine/instruction_sets.sh repeats these tests with each instruction set of the processor: logits and results of
# every family, recorded runs, the engine and its key pages, and whole answers in any batch. With sanitizers it leaves out
# the slow ones.
ISA_TESTS := golden/logits golden/reference engine/engine engine/kv engine/speculation \
             $(if $(SAN),,families/families golden/oracle engine/whole_invariance)
CHECKED_ISA := $(if $(filter tests/engine/instruction_sets.sh,$(TEST_SCRIPTS)),$(patsubst %,$(BUILD)/tests/%_test,ops/ops_isa $(ISA_TESTS)))
# tests/engine/ranks.sh repeats these tests with models in several ranks; with sanitizers it leaves out the slow ones.
RANKS_TESTS := engine/adapters:2 $(if $(filter thread,$(SAN)),,engine/schedule:2 engine/schedule:2:whole) $(if $(SAN),,engine/whole_invariance:4 families/families:2)
CHECKED_RANKS := $(if $(filter tests/engine/ranks.sh,$(TEST_SCRIPTS)),$(foreach t,$(RANKS_TESTS),$(BUILD)/tests/$(firstword $(subst :, ,$t))_test))
# tests/build/arm64.sh compares the products of the emulated processor with those of this program here.
ARM64_COMPARED := $(if $(filter tests/build/arm64.sh,$(TEST_SCRIPTS)),$(BUILD)/tests/ops/ops_quantize_test)
FAMILY_TEST := $(BUILD)/tests/families/families_test
EXTENDING_TESTS := $(filter $(BUILD)/tests/extending/%,$(TEST_PROGRAMS))
TOOL_TESTS := $(filter $(BUILD)/tests/tools/%,$(TEST_PROGRAMS))
VECTOR_TESTS := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/vectors/*_test.c)))
FUZZ_PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(FUZZ_SRC))
# Fills answers for tests/grammar/trials.sh.
TRIALS := $(BUILD)/tests/grammar/trials
SERVE_BENCHES := $(BUILD)/bench/stub_worker $(BUILD)/bench/http_load $(BUILD)/bench/evhttp_echo
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(EXAMPLE_SRC))
EXTENDED := $(BUILD)/$(ROWS)/unmask
CHECKPOINT := $(BUILD)/tools/checkpoint
LIBRARY := $(BUILD)/libunmask.a
SHARED := $(BUILD)/libunmask.so.$(VERSION)
# The program without its main, so that tests can call its parts.
CLI_PARTS := $(BUILD)/libcli.a $(BUILD)/libserver.a
# The helpers that tests share.
TEST_SUPPORT := $(BUILD)/libtest.a
# Recordings and vocabularies are packed in tests/data/NAME.tar.xz. Files that people edit are in tests/data/NAME. Tests
# read both from build/data/NAME, which all builds share, independent of BUILD.
TEST_DATA := $(patsubst tests/data/%.tar.xz,build/data/%,$(wildcard tests/data/*.tar.xz))

PLUGIN := $(CUDA_BUILD)/libunmask-cuda.so
CUDA_CHECK := $(CUDA_BUILD)/tests/cuda/check
# A plugin of the same name for tests without a GPU. They copy it beside a program.
FAKE_GPU := $(BUILD)/tests/gpu/libunmask-cuda.so

all: $(BUILD)/unmask $(LIBRARY) $(SHARED) $(if $(CUDA),$(PLUGIN)) ## build program, static and shared library (default)

tests: $(TEST_PROGRAMS) $(TRIALS) $(FAKE_GPU) $(SERVE_BENCHES) $(CHECKPOINT) $(TEST_DATA) ## build the test programs, and the benchmarks that tests run

checkpoint: $(CHECKPOINT) ## build tools/checkpoint, which writes checkpoints with random weights

examples: $(EXAMPLES) $(EXTENDED) ## build examples/

extended: $(EXTENDED) ## build the program with the rows and tables of a folder: ROWS=my_rows makes build/my_rows/unmask

# ---- Rules -------------------------------------------------------------------------------------------------------- #

$(BUILD)/unmask: $(call objects,src/cli/main.c) $(CLI_PARTS) $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(SERVER_LIBS) $(LIBS)

# Archives are rebuilt from scratch, so that they don't keep the objects of deleted sources.
$(LIBRARY): $(call objects,$(LIB_SRC))
$(BUILD)/libcli.a: $(call objects,$(filter-out src/cli/main.c,$(CLI_SRC)))
$(BUILD)/libserver.a: $(call objects,$(SERVER_SRC))
$(TEST_SUPPORT): $(call objects,$(TEST_SUPPORT_SRC))
$(LIBRARY) $(CLI_PARTS) $(TEST_SUPPORT):
	$(call say,ar)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(SHARED): $(call objects,$(LIB_SRC))
	$(call say,link)
	$(Q)$(LINK) -shared -Wl,-soname,$(SONAME) -o $@ $^ $(LIBS)
	$(Q)ln -sf $(notdir $@) $(BUILD)/$(SONAME) && ln -sf $(SONAME) $(BUILD)/libunmask.so

$(sort $(TEST_PROGRAMS) $(VECTOR_TESTS) $(CHECKED_ISA) $(CHECKED_RANKS) $(ARM64_COMPARED)): %: %.o $(TEST_SUPPORT) $(CLI_PARTS) $(LIBRARY) | $(TEST_DATA)
	$(call say,link)
	$(Q)$(LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lcmocka $(SERVER_LIBS) $(LIBS)

$(FAKE_GPU): $(call objects,tests/gpu/fake_gpu.c) $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -shared -Wl,-Bsymbolic -o $@ $^ $(LIBS)

$(EXTENDING_TESTS): $(call objects,$(EXTENDING_SRC))

$(FAMILY_TEST): $(call objects,$(FAMILY_SRC))

$(EXTENDED): $(call objects,src/cli/main.c $(ROWS_SRC)) $(CLI_PARTS) $(LIBRARY)
	$(if $(ROWS_SRC),,$(error no sources (*.c) in the folder ROWS=$(ROWS)))
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(SERVER_LIBS) $(LIBS)

$(TOOL_TESTS): $(call objects,$(filter-out %/main.c,$(CHECKPOINT_SRC)))

$(CHECKPOINT): $(call objects,$(CHECKPOINT_SRC)) $(CLI_PARTS) $(LIBRARY) | build/data/tokenizers
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(SERVER_LIBS) $(LIBS)

$(FUZZ_PROGRAMS): %: %.o $(CLI_PARTS) $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -fsanitize=fuzzer -o $@ $^ $(SERVER_LIBS) $(LIBS)

$(EXAMPLES): %: %.o $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(LIBS)

$(BUILD)/tests/%.o: private UM_CFLAGS += -Itests
# Compiling takes longer than running for most tests, so they are hardly optimized. With sanitizers, gcc would then warn of
# correct code. CFLAGS on the command line replace this.
$(BUILD)/tests/%.o: private CFLAGS += $(if $(SAN),,-Og)
$(BUILD)/tests/tools/%.o: private UM_CFLAGS += -Itools/checkpoints
$(BUILD)/tests/extending/%.o: private UM_CFLAGS += -Itests/unit -Iexamples/extending

$(BUILD)/%.o: %.c $(BUILD)/flags | $(BUILD)/gen/commit.h
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) -c -o $@ $<

# ---- The backend for NVIDIA GPUs ---------------------------------------------------------------------------------- #

# `make cuda-compile` optimizes less, because nobody runs its code. Without full optimization ptxas prints notes about the
# matrix instructions of these files.
CUDA_OPT ?= -O3
$(patsubst %,$(CUDA_BUILD)/src/cuda/%.cu.o,product_stream product_stream_fp8 product_stream_blocks product_many attention_stream moe_tiles router): private override CUDA_OPT := -O3
# nvcc 12.8 and newer can compress machine code: a plugin of 10 MB shrinks to 3 MB.
NVCC_COMPRESS := $(if $(shell command -v $(NVCC)),$(shell $(NVCC) --help | grep -q -- --compress-mode && echo --compress-mode=size))
NVCC_FLAGS := -std=c++20 --expt-relaxed-constexpr -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra,-Werror \
              -Xcompiler -Wno-missing-field-initializers -DUM_BUILD -Iinclude -Isrc -Itests/cuda \
              $(NVCC_COMPRESS) \
              $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
              $(foreach a,$(CUDA_PTX),-gencode arch=compute_$(a),code=compute_$(a))
# The libraries of CUDA that are linked at run time. The CUDA runtime is linked into the plugin.
CUDA_LIBS := -lcublasLt
cuda_objects = $(patsubst %.cu,$(CUDA_BUILD)/%.cu.o,$(1))

# Files without kernels are compiled for the host alone, which takes a quarter of the time.
CUDA_HOST_SRC := $(shell grep -L '__global__\|__device__\|<<<\|cudaLaunch\|_kernel\.cuh' $(CUDA_SRC) $(CUDA_CHECK_SRC))
$(call cuda_objects,$(CUDA_HOST_SRC)): private NVCC_FLAGS += -x c++

$(CUDA_BUILD)/%.cu.o: %.cu $(CUDA_BUILD)/cuda-flags
	@mkdir -p $(@D)
	$(call say,nvcc)
	$(Q)$(NVCC) $(CUDA_OPT) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

# The plugin takes what it needs of the library's rooms base and ops into itself.
$(PLUGIN): $(call cuda_objects,$(CUDA_SRC)) $(LIBRARY)
	$(call say,link)
	$(Q)$(NVCC) -shared -o $@ $^ -Xlinker --exclude-libs,ALL,--no-undefined $(CUDA_LIBS) $(LIBS)

$(CUDA_CHECK): $(call cuda_objects,$(CUDA_SRC) $(CUDA_CHECK_SRC)) $(LIBRARY)
	$(call say,link)
	$(Q)$(NVCC) -o $@ $^ $(CUDA_LIBS) $(LIBS)

$(CUDA_BUILD)/cuda-flags: FORCE
	@command -v $(NVCC) > /dev/null || { echo "$(NVCC) is missing: install the CUDA toolkit, or set NVCC" >&2; exit 1; }
	@$(call rewrite,$(NVCC) $(CUDA_OPT) $(NVCC_FLAGS))

cuda-products: $(PLUGIN) $(CUDA_CHECK)

cuda-compile: $(LIBRARY) ## compile all CUDA code for one architecture, as `make check` does; needs nvcc, but no GPU
	@$(MAKE) cuda-products CUDA_BUILD=$(BUILD)/cuda CUDA_ARCHS=$(CUDA_CHECK_ARCH) CUDA_PTX= CUDA_OPT='-O1 -Xcicc -O1 -Xptxas -O1'
	@echo "CUDA: $(words $(CUDA_SRC) $(CUDA_CHECK_SRC)) files are compiled for sm_$(CUDA_CHECK_ARCH)"

# ---- 64-bit ARM --------------------------------------------------------------------------------------------------- #

# The tests of operations, compiled for 64-bit ARM and linked statically. They need the rooms base and ops and the C
# library, and no other library: tests/static has a stand-in for cmocka. qemu runs them as several processors.
ARM64_CC ?= aarch64-linux-gnu-gcc
QEMU_ARM64 ?= qemu-aarch64-static
ARM64_LIBC := $(filter /%,$(shell $(ARM64_CC) -print-file-name=libc.a 2>/dev/null))
ARM64_SKIPPED := $(if $(SAN)$(filter clang%,$(CC)),only builds with gcc and without sanitizers run code for 64-bit ARM,\
                 $(if $(ARM64_LIBC),,$(ARM64_CC) or its C library is not installed$(comma) so no code for 64-bit ARM was run))
ARM64_SKIPPED := $(or $(strip $(ARM64_SKIPPED)),\
                 $(if $(shell command -v $(QEMU_ARM64)),,$(QEMU_ARM64) is not installed$(comma) so no code for 64-bit ARM was run))
CHECKED_ARM64 := $(if $(ARM64_SKIPPED),,$(if $(filter tests/build/arm64.sh,$(TEST_SCRIPTS)),arm64-programs $(ARM64_COMPARED)))
STATIC_TESTS := $(patsubst tests/ops/%.c,$(BUILD)/static/%,$(sort $(wildcard tests/ops/*_test.c)))

$(BUILD)/libops.a: $(call objects,$(filter src/base/% src/ops/%,$(LIB_SRC)))
	$(call say,ar)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# The linker warns of dlopen, which opens the CUDA plugin. These tests don't use it.
$(STATIC_TESTS): $(BUILD)/static/%: $(BUILD)/tests/ops/%.o $(BUILD)/libops.a
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(LINK) -static -Wl,--no-warnings -o $@ $^ -lpthread -lm

static-tests: $(STATIC_TESTS)

arm64-programs:
	@$(MAKE) static-tests CC=$(ARM64_CC) BUILD=$(BUILD)/arm64 CPPFLAGS='-Itests/static $(CPPFLAGS)'

# The arguments are the slow tests.
arm64-check: $(BUILD)/tests/ops/ops_quantize_test ## run all tests of operations for 64-bit ARM in qemu; `make check` runs the fast ones
	@$(if $(ARM64_SKIPPED),echo '$(ARM64_SKIPPED)' >&2; exit 1,$(MAKE) arm64-programs)
	@BUILD=$(BUILD) ARM64_CC=$(ARM64_CC) QEMU_ARM64=$(QEMU_ARM64) tests/build/arm64.sh parity head moe kv invariance select

# ---- Generated sources -------------------------------------------------------------------------------------------- #

# The built-in chat templates as numbers, for C arrays.
TEMPLATES := $(wildcard src/text/templates/*.jinja)
$(BUILD)/src/text/chat_builtin.o: $(TEMPLATES:src/text/%.jinja=$(BUILD)/gen/%.inc)
$(BUILD)/gen/templates/%.inc: src/text/templates/%.jinja
	@mkdir -p $(@D)
	$(Q)od -An -v -td1 $< | sed 's/[0-9][0-9]*/&,/g' > $@

# The files of tests/data/released as one JSON object, for an array: {"sdar_8b": {...}, ..., "releases": {...}}
RELEASED := $(sort $(wildcard tests/data/released/*.json))
$(BUILD)/tools/checkpoints/releases.o: $(BUILD)/gen/released.inc
$(BUILD)/gen/released.inc: $(RELEASED)
	@mkdir -p $(@D)
	$(Q){ comma='{'; for f in $^; do printf '%s"%s":' "$$comma" $$(basename $$f .json); cat $$f; comma=,; done; echo '}'; } | \
	 od -An -v -td1 | sed 's/[0-9][0-9]*/&,/g' > $@

# The files of the web page as C arrays, and a list of them. Each has a tag that changes with its content.
WEB := $(sort $(wildcard web/*.html web/*.css web/*.js web/*.svg))
web_array = web_$(subst -,_,$(subst .,_,$(notdir $(1))))
$(BUILD)/src/server/api/page.o: $(BUILD)/gen/web.inc
$(BUILD)/gen/web.inc: $(WEB) $(BUILD)/gen/web-list
	@mkdir -p $(@D)
	$(Q){ $(foreach f,$(WEB),echo 'static const char $(call web_array,$(f))[] = {'; \
	      od -An -v -td1 $(f) | sed 's/[0-9][0-9]*/&,/g'; echo '};';) \
	      printf '\043define UM_WEB_FILES(X)'; \
	      $(foreach f,$(WEB),printf ' X($(call web_array,$(f)), "$(notdir $(f))", "\\"%s\\"")' $$(sha256sum $(f) | cut -c1-16);) \
	      echo; } > $@

$(TEST_DATA): build/data/%: tests/data/%.tar.xz
	$(call say,xz)
	$(Q)tools/data.sh unpack tests/data/$* $@
build/data/tokenizers: $(shell find tests/data/tokenizers)

# These files are rewritten only when their content changes. New flags rebuild everything, a new commit rebuilds
# --version.
rewrite = mkdir -p $(@D); printf '%s\n' '$(1)' | cmp -s - $@ || printf '%s\n' '$(1)' > $@

$(BUILD)/flags: FORCE
	@pkg-config --exists --print-errors $(PACKAGES) $(HEADER_PACKAGES) $(SERVER_PACKAGES) || { echo "libraries are missing; run: make deps" >&2; exit 1; }
	@$(call rewrite,$(COMPILE))

$(BUILD)/gen/web-list: FORCE
	@$(call rewrite,$(WEB))

$(BUILD)/gen/commit.h: FORCE
	@$(call rewrite,#define UM_COMMIT "$(shell git describe --always --dirty 2>/dev/null || echo unknown)")

FORCE:
-include $(shell find $(BUILD)/src $(BUILD)/tests $(BUILD)/examples $(BUILD)/bench $(BUILD)/tools $(BUILD)/packaging $(EXTENDED:%/unmask=%) $(CUDA_BUILD:$(BUILD)=) -name "*.d" 2>/dev/null)

# ---- Demonstration and tests -------------------------------------------------------------------------------------- #

# Few tokens per pass and a pause after each pass, so that you can follow the denoising.
DEMO := --model models/tiny-full --max-tokens 64 --block-size 64 --steps 24 --delay 120

demo: export PROMPT := $(PROMPT)
demo: ## install what is missing, build, watch the bundled model answer
	@tools/deps.sh build
	@$(MAKE) all
	@printf '\n$$ %s run %s "%s"\n' '$(BUILD)/unmask' '$(DEMO)' "$$PROMPT"
	@$(BUILD)/unmask run $(DEMO) "$$PROMPT"
	@if [ -t 0 ]; then printf '\n$$ %s chat --model models/tiny-block\n' '$(BUILD)/unmask'; \
	 exec $(BUILD)/unmask chat --model models/tiny-block; \
	 else echo; echo 'Ask it more: $(BUILD)/unmask chat --model models/tiny-block'; fi

# nvcc compiles with gcc and without sanitizers in any case, so only the plain build compiles CUDA code.
CUDA_SKIPPED := $(if $(SAN)$(filter clang%,$(CC)),only builds with gcc and without sanitizers compile CUDA code,\
                $(if $(shell command -v $(NVCC)),,$(NVCC) is not installed, so no CUDA code was compiled))
CHECKED_CUDA := $(if $(strip $(CUDA_SKIPPED)),,cuda-compile)

check: ## install what is missing, build, run every test; SAN=..., TESTS='unit/*'
	@tools/deps.sh test
	@$(MAKE) all tests examples $(CHECKED_ISA) $(CHECKED_RANKS) $(CHECKED_CUDA) $(CHECKED_ARM64)
	@UM_CUDA_SKIPPED='$(strip $(CUDA_SKIPPED))' UM_ARM64_SKIPPED='$(ARM64_SKIPPED)' UM_ISA_TESTS='$(strip $(ISA_TESTS))' \
	 UM_RANKS_TESTS='$(strip $(RANKS_TESTS))' ARM64_CC=$(ARM64_CC) QEMU_ARM64=$(QEMU_ARM64) \
	 tests/run.sh $(BUILD) $(TEST_PROGRAMS) $(TEST_SCRIPTS)

CUDA_TESTS := golden/recordings golden/ranks golden/oracle families/families engine/speculation engine/schedule engine/pressure engine/adapters engine/whole_invariance

# Where nvcc is missing, the bundle that another machine has built is used as it is.
check-cuda: ## compare all operations with the reference and run the tests of the engine, on an NVIDIA GPU
	@if command -v $(NVCC) > /dev/null; then $(MAKE) cuda-bundle; \
	 elif [ ! -x $(BUNDLE)/run.sh ]; then echo "$(NVCC) and $(BUNDLE) are missing: run make cuda-bundle where nvcc is" >&2; exit 1; fi
	@$(BUNDLE)/run.sh

# The programs of `make check-cuda` with all files that they read, for machines that have nothing but a driver and
# cuBLASLt. Libraries lie in lib/, which the programs and the libraries themselves search first.
BUNDLE := $(BUILD)/cuda-bundle
BUNDLE_TESTS := $(CUDA_TESTS:%=$(BUNDLE)/bin/%_test)
BUNDLE_PROGRAMS := $(BUNDLE)/bin/unmask $(BUNDLE)/bin/check $(BUNDLE_TESTS)
BUNDLE_RPATH := --disable-new-dtags,--as-needed,-rpath,\$$ORIGIN/../lib:\$$ORIGIN/../../lib

cuda-bundle: $(BUNDLE_PROGRAMS) $(PLUGIN) $(TEST_DATA) ## write build/cuda-bundle: the programs, libraries and data of check-cuda, for a machine with only a driver
	@tools/cuda_bundle.sh $(BUNDLE) $(PLUGIN) $(CUDA_TESTS)

$(BUNDLE)/bin/unmask: $(call objects,src/cli/main.c) $(CLI_PARTS) $(LIBRARY)
$(BUNDLE)/bin/families/families_test: $(call objects,$(FAMILY_SRC))
$(BUNDLE_TESTS): $(BUNDLE)/bin/%: $(BUILD)/tests/%.o $(TEST_SUPPORT) $(CLI_PARTS) $(LIBRARY)
$(BUNDLE)/bin/unmask $(BUNDLE_TESTS):
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(LINK) -s -Wl,$(BUNDLE_RPATH) -o $@ $^ -lcmocka $(SERVER_LIBS) $(LIBS)

$(BUNDLE)/bin/check: $(call cuda_objects,$(CUDA_SRC) $(CUDA_CHECK_SRC)) $(LIBRARY)
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(NVCC) -Xlinker -s,$(BUNDLE_RPATH) -o $@ $^ $(CUDA_LIBS) $(LIBS)

# DATA is another folder with the layout of tests/data/tokenizers. Its .xz files are unpacked.
DATA ?=
TOKENIZERS := $(if $(DATA),build/data/given,build/data/tokenizers)

build/data/given: FORCE
	$(Q)tools/data.sh unpack '$(DATA)' $@

vectors: $(VECTOR_TESTS) $(TOKENIZERS) ## compare every tokenizer, or those below DATA, with its test vectors, and print the counts
	@for t in $(VECTOR_TESTS); do UM_TOKENIZER_DATA=$(TOKENIZERS) $$t || exit 1; done

check-families: $(FAMILY_TEST) ## replay the recorded runs of model families, or those below DATA
	@UM_FAMILY_DATA='$(or $(DATA),build/data/families)' $<

fuzz: ## run each fuzz target for FUZZ_SECONDS, with the same inputs again if FUZZ_SEED is not 0
	@tools/deps.sh tools
	@$(MAKE) fuzz-programs CC=clang BUILD=build/fuzz SAN=fuzzer-no-link,address,undefined
	@printf '%s\n' $(FUZZ_SRC:tests/fuzz/%_fuzz.c=%) | xargs -P "$$(nproc)" -I '{}' tools/fuzz.sh build/fuzz '{}' $(FUZZ_SECONDS) $(FUZZ_SEED)

fuzz-programs: $(FUZZ_PROGRAMS)

soak: tests/soak/engine_soak.c ## run 100,000 requests with too few pages, fill a million answers under constraints, then random requests and a server under load for SOAK_SECONDS each, then hostile clients, schemathesis, lm-eval, clients from PyPI, the sdist, the notebook, clusters of Ray and Slurm, the comparison with PyTorch and vLLM
	@$(MAKE) $(BUILD)/unmask $(TRIALS) $(BUILD)/tests/soak/engine_soak $(BUILD)/tests/engine/pressure_test $(BUILD)/tests/server/mixed_load_test
	@tests/soak/run.sh $(BUILD) $(SOAK_SECONDS) $(SOAK_PARTS)

$(TRIALS) $(BUILD)/bench/compile_times $(BUILD)/tests/soak/engine_soak: %: %.o $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(LIBS)

bench: ## measure the bundled models, the single operations and the tokenizers in turn
	@$(MAKE) bench-models
	@$(MAKE) bench-ops
	@$(MAKE) bench-text

bench-models: all
	$(BUILD)/unmask bench --model models/tiny-block
	$(BUILD)/unmask bench --model models/tiny-full --requests 32 --steps 64

bench-ops: $(BUILD)/unmask ## time the single operations of the cpu backend, and linear layers of oneDNN and ggml for comparison
	-@tools/deps.sh bench
	@$(MAKE) $(BUILD)/bench/products_bench
	$(BUILD)/unmask bench ops
	$(BUILD)/bench/products_bench

bench-text: $(BUILD)/bench/text_bench $(BUILD)/bench/chat_bench $(TOKENIZERS) ## time the tokenizers, or those below DATA, and the templates
	$(BUILD)/bench/text_bench $(TOKENIZERS)
	$(BUILD)/bench/chat_bench $(TOKENIZERS)

# CONSTRAINED is a folder with a tokenizer and a config.json.
CONSTRAINED ?= models/tiny-block
bench-constraints: $(BUILD)/bench/fill_bench ## time what a constraint costs a pass, with the tokenizer of the folder CONSTRAINED
	$(BUILD)/bench/fill_bench $(CONSTRAINED)

$(BUILD)/bench/fill_bench: %: %.o $(BUILD)/bench/machine.o $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(LIBS)

bench-tradeoffs: all build/data/golden ## measure accuracy, tokens per forward, speed and memory of each choice of decoding, and draw plots
	@tools/deps.sh bench
	UNMASK=$(BUILD)/unmask bench/tradeoffs.sh

bench-batching: all ## compare 16 requests at once with 16 in turn, and show where the time of a step goes
	UNMASK=$(BUILD)/unmask bench/batching.sh

bench-http: $(BUILD)/bench/http_bench ## compare the HTTP server with libevent's evhttp: time, and memory of open streams
	$(BUILD)/bench/http_bench

# Only the comparison uses evhttp, not the program.
$(BUILD)/bench/http_bench: %: %.o $(BUILD)/bench/machine.o $(CLI_PARTS) $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(SERVER_LIBS) $(shell pkg-config --libs libevent_extra) $(LIBS)

bench-cuda: $(BUILD)/unmask ## measure whole steps on an NVIDIA GPU beside PyTorch and the limit of the GPU, as one table
	bench/cuda_table.py --unmask $(BUILD)/unmask $(CUDA_TABLE_OPTIONS)

bench-python: wheel ## compare the Python package with the program: tokens/s, events/s of AsyncLLM
	BUILD=$(BUILD) bench/python.sh

bench-serve-overhead: all $(SERVE_BENCHES) ## measure the overhead of the server: CPU time per request and event, memory per stream
	BUILD=$(BUILD) bench/serve_overhead.sh

# Only the comparison uses evhttp, not the program.
$(BUILD)/bench/evhttp_echo: SERVER_LIBS += $(shell pkg-config --libs libevent 2>/dev/null)
$(SERVE_BENCHES): %: %.o $(BUILD)/libserver.a $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(SERVER_LIBS) $(LIBS)

BENCHES := $(BUILD)/bench/products_bench $(BUILD)/bench/text_bench $(BUILD)/bench/chat_bench

# oneDNN and ggml are only for comparison. The benchmark also runs without them. GGML is the folder in which
# tools/compare_llama_cpp.sh has built llama.cpp.
ONEDNN = $(shell printf '\043include <dnnl.h>\n' | $(CC) $(CPPFLAGS) -E -x c - > /dev/null 2>&1 && echo -ldnnl)
GGML ?= build/compare
GGML_INCLUDE = $(wildcard $(GGML)/llama_cpp_python-*/vendor/llama.cpp/ggml/include)
GGML_LIBS = $(wildcard $(GGML)/llama/ggml/src/libggml.a $(GGML)/llama/ggml/src/libggml-cpu.a) \
            $(wildcard $(GGML)/llama/ggml/src/libggml-base.a)

$(BUILD)/gen/rivals: FORCE
	@$(call rewrite,$(ONEDNN) $(GGML_INCLUDE) $(GGML_LIBS))

$(BUILD)/bench/onednn.o $(BUILD)/bench/ggml.o: $(BUILD)/gen/rivals
$(BUILD)/bench/ggml.o: UM_CFLAGS += $(addprefix -isystem ,$(GGML_INCLUDE))
$(BUILD)/bench/products_bench: $(BUILD)/bench/onednn.o $(BUILD)/bench/ggml.o
$(BUILD)/bench/products_bench: LIBS += $(ONEDNN) $(if $(strip $(GGML_LIBS)),$(GGML_LIBS) -lstdc++ -lgomp)

$(BENCHES): %: %.o $(BUILD)/bench/machine.o $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(LIBS)

# Files that the program prints itself. tests/cli/docs.sh fails if they are out of date.
docs: $(BUILD)/unmask ## rewrite manual page, docs/options.md and shell completion from the option tables
	$(BUILD)/unmask help --format man > docs/unmask.1
	$(BUILD)/unmask help --format markdown > docs/options.md
	$(BUILD)/unmask help --format bash > completion/unmask.bash
	$(BUILD)/unmask help --format zsh > completion/unmask.zsh
	$(BUILD)/unmask help --format fish > completion/unmask.fish

# ---- Installation ------------------------------------------------------------------------------------------------- #

# The bundled checkpoints, and eval*.jsonl with the questions of eval and bench.
MODEL_FILES := $(wildcard models/*.jsonl models/*/*)
DOC_FILES := $(filter-out %.1,$(wildcard docs/*.* docs/*/*.*))
# zsh reads this folder below /usr/local. The folder below /usr depends on the distribution.
ZSH_DIR ?= share/zsh/site-functions
D := $(DESTDIR)$(PREFIX)
L := $(DESTDIR)$(LIBDIR)

$(BUILD)/unmask.pc: packaging/unmask.pc.in FORCE
	@sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|; s|@LIBS_PRIVATE@|$(STATIC_LIBS)|' $< > $@

install: all $(BUILD)/unmask.pc ## install below DESTDIR and PREFIX
	install -d $D/bin $D/include $L/pkgconfig $D/share/man/man1
	install $(BUILD)/unmask $D/bin/unmask
	install -m 644 include/unmask.h $D/include/unmask.h
	install -m 644 $(LIBRARY) $L/libunmask.a
	install -m 755 $(SHARED) $L/$(notdir $(SHARED))
	ln -sf $(notdir $(SHARED)) $L/$(SONAME)
	ln -sf $(SONAME) $L/libunmask.so
	$(if $(CUDA),install -D -m 755 $(PLUGIN) $L/unmask/$(notdir $(PLUGIN)))
	install -m 644 $(BUILD)/unmask.pc $L/pkgconfig/unmask.pc
	install -m 644 docs/unmask.1 $D/share/man/man1/unmask.1
	install -D -m 644 completion/unmask.bash $D/share/bash-completion/completions/unmask
	install -D -m 644 completion/unmask.zsh $D/$(ZSH_DIR)/_unmask
	install -D -m 644 completion/unmask.fish $D/share/fish/vendor_completions.d/unmask.fish
	@for f in $(MODEL_FILES); do install -D -m 644 $$f $D/share/unmask/$$f || exit 1; done
	@for f in $(DOC_FILES); do install -D -m 644 $$f $D/share/doc/unmask/$${f#docs/} || exit 1; done
	@if [ -z '$(DESTDIR)' ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

SYSTEMD_DIR ?= /etc/systemd/system

install-service: ## install the systemd unit below DESTDIR
	install -d $(DESTDIR)$(SYSTEMD_DIR)
	sed 's|@PREFIX@|$(PREFIX)|' packaging/unmask.service.in > $(DESTDIR)$(SYSTEMD_DIR)/unmask.service

uninstall: ## remove the installed files
	rm -f $D/bin/unmask $D/include/unmask.h $L/libunmask.a $L/libunmask.so $L/$(SONAME) $L/$(notdir $(SHARED)) \
	      $L/pkgconfig/unmask.pc $D/share/man/man1/unmask.1 \
	      $D/share/bash-completion/completions/unmask $D/$(ZSH_DIR)/_unmask $D/share/fish/vendor_completions.d/unmask.fish
	rm -rf $D/share/unmask $D/share/doc/unmask $L/unmask

deb: all ## write build/unmask_VERSION-1_ARCH.deb
	+@packaging/deb.sh $(BUILD) $(VERSION)

dist: $(BUILD)/dist/unmask ## write build/unmask-VERSION-linux-ARCH.tar.gz with a program that needs only the C library
	@$(MAKE) all
	+@packaging/dist.sh $(BUILD) $(VERSION)

# Debian's static libraries, and those that libzmq needs. packaging/dist.sh reads in the linker's map which of them are in
# the program, and copies their licences.
DIST_LIBS := $(if $(LIBEDIT),-ledit -ltinfo) $(if $(ZLIB),-lz) $(if $(ZSTD),-lzstd) -levent_core -lzmq -lsodium -lbsd -lmd -ljansson -lpcre2-8 -lutf8proc -lyaml -lstdc++

$(BUILD)/dist/unmask: $(call objects,src/cli/main.c packaging/zmq_without.c) $(CLI_PARTS) $(LIBRARY)
	@mkdir -p $(@D)
	$(call say,link)
	$(Q)$(LINK) -s -static-libgcc -Wl,-Map=$@.map -o $@ $^ -Wl,-Bstatic $(DIST_LIBS) -Wl,-Bdynamic -lpthread -ldl -lm

wheel: all ## write the Python package: a wheel and an sdist in build/wheel
	+@packaging/wheel.sh $(BUILD)

# ---- Tools -------------------------------------------------------------------------------------------------------- #

deps: ## install compiler, libraries, test and formatting tools
	@tools/deps.sh build
	@tools/deps.sh test
	@tools/deps.sh tools

CLANG_FORMAT ?= $(or $(shell command -v clang-format-14),clang-format)

format: ## rewrite every source in the style of .clang-format (version 14)
	@printf '%s\n' $(FORMATTED) | xargs -P "$$(nproc)" -n 16 $(CLANG_FORMAT) -i

format-check: ## fail if a source is not formatted
	@$(CLANG_FORMAT) --version | grep -q 'version 14\.' || { echo "clang-format 14 is needed: make deps" >&2; exit 1; }
	@printf '%s\n' $(FORMATTED) | xargs -P "$$(nproc)" -n 16 $(CLANG_FORMAT) --dry-run -Werror || \
	 { echo "not formatted; run make format" >&2; exit 1; }

clean: ## remove build/
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 16

.PHONY: all wheel tests examples extended checkpoint demo check check-cuda arm64-check arm64-programs static-tests cuda-products cuda-compile cuda-bundle docs vectors fuzz fuzz-programs soak bench bench-models bench-ops bench-text bench-constraints bench-http bench-tradeoffs bench-batching bench-serve-overhead bench-cuda bench-python install install-service uninstall deb dist deps format format-check clean help FORCE
.SECONDARY:
.DELETE_ON_ERROR:
