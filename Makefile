# unmask: GNU make, pkg-config and a C11 compiler. `make help` lists the targets.
#
# Top to bottom: settings, what is built, rules, tests, installation, tools. Sources are found by wildcard: src/cli and
# src/server are the program, every other folder of src the library, tests/*/*_test.c one test program each.

# ---- Settings ----------------------------------------------------------------------------------------------------- #

ifeq ($(origin CC),default)
CC := gcc
endif
CFLAGS ?= -O2 -g
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
PROMPT ?= A book has 110 pages. Hana reads 12 pages a day for 8 days. How many pages are left?
FUZZ_SECONDS ?= 600
SOAK_SECONDS ?= 600
# Which tests `check` runs, as patterns below tests/: TESTS='unit/base_* engine/*'
TESTS ?= */*
# Sanitizers: SAN=address,undefined or SAN=thread. They build beside the ordinary objects.
SAN ?=
comma := ,
BUILD ?= build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))

VERSION := $(shell sed -n 's/^.define UM_VERSION_[A-Z]* //p' include/unmask.h | paste -sd.)
SONAME := libunmask.so.$(firstword $(subst ., ,$(VERSION)))

# All cores, unless the caller says how many.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
MAKEFLAGS += --no-print-directory --no-builtin-rules

PACKAGES := jansson libpcre2-8 libutf8proc yaml-0.1
# What the program needs beside that, for its server.
SERVER_PACKAGES := libevent_core libzmq
LIBS := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) -lpthread -lm
SERVER_LIBS := $(shell pkg-config --libs $(SERVER_PACKAGES) 2>/dev/null)
SAN_FLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
UM_CFLAGS := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -fPIC -fvisibility=hidden -DUM_BUILD -Iinclude -Isrc \
             -I$(BUILD)/gen $(shell pkg-config --cflags $(PACKAGES) $(SERVER_PACKAGES) 2>/dev/null) $(SAN_FLAGS)
COMPILE = $(CC) $(UM_CFLAGS) $(CPPFLAGS) $(CFLAGS) -MMD -MP
# V=1 shows the commands.
Q := $(if $(V),,@)
say = @$(if $(V),:,printf '  %-5s %s\n' $(1) $@)
LINK = $(CC) $(SAN_FLAGS) $(CFLAGS) $(LDFLAGS)

# ---- What is built ------------------------------------------------------------------------------------------------ #

objects = $(patsubst %.c,$(BUILD)/%.o,$(1))

CLI_SRC := $(sort $(wildcard src/cli/*.c))
SERVER_SRC := $(sort $(wildcard src/server/*.c src/server/*/*.c))
LIB_SRC := $(filter-out $(CLI_SRC) $(SERVER_SRC),$(sort $(wildcard src/*/*.c src/*/*/*.c)))
TEST_SRC := $(sort $(wildcard $(TESTS:%=tests/%_test.c)))
TEST_SUPPORT_SRC := $(sort $(wildcard tests/*.c))
TEST_SCRIPTS := $(sort $(wildcard $(TESTS:%=tests/%.sh)))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/*_fuzz.c))
EXAMPLE_SRC := $(sort $(wildcard examples/*.c))
# Rows of one's own and the tables that name them (docs/extending.md): in front of the library, whose tables they replace.
EXTENDING_SRC := $(sort $(wildcard examples/extending/*.c))
FORMATTED := $(wildcard include/*.h src/*/*.[ch] src/*/*/*.[ch] tests/*.[ch] tests/*/*.[ch] examples/*.[ch] examples/*/*.[ch] bench/*.[ch])

TEST_PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(TEST_SRC))
EXTENDING_TESTS := $(filter $(BUILD)/tests/extending/%,$(TEST_PROGRAMS))
VECTOR_TESTS := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/vectors/*_test.c)))
FUZZ_PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(FUZZ_SRC))
SERVE_BENCHES := $(BUILD)/bench/stub_worker $(BUILD)/bench/http_load $(BUILD)/bench/evhttp_echo
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(EXAMPLE_SRC))
EXTENDED := $(BUILD)/examples/extending/unmask
LIBRARY := $(BUILD)/libunmask.a
SHARED := $(BUILD)/libunmask.so.$(VERSION)
# The program without its main, so that tests can call its parts.
CLI_PARTS := $(BUILD)/libcli.a $(BUILD)/libserver.a
# What tests share.
TEST_SUPPORT := $(BUILD)/libtest.a

all: $(BUILD)/unmask $(LIBRARY) $(SHARED) ## build program, static and shared library (default)

tests: $(TEST_PROGRAMS) $(SERVE_BENCHES) ## build the test programs, and benches that tests run

examples: $(EXAMPLES) $(EXTENDED) ## build examples/

# ---- Rules -------------------------------------------------------------------------------------------------------- #

$(BUILD)/unmask: $(call objects,src/cli/main.c) $(CLI_PARTS) $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(SERVER_LIBS) $(LIBS)

# Archives are made anew: a source that went away must not live on in them.
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

$(sort $(TEST_PROGRAMS) $(VECTOR_TESTS)): %: %.o $(TEST_SUPPORT) $(CLI_PARTS) $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lcmocka $(SERVER_LIBS) $(LIBS)

$(EXTENDING_TESTS): $(call objects,$(EXTENDING_SRC))

$(EXTENDED): $(call objects,src/cli/main.c $(EXTENDING_SRC)) $(CLI_PARTS) $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(SERVER_LIBS) $(LIBS)

$(FUZZ_PROGRAMS): %: %.o $(CLI_PARTS) $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -fsanitize=fuzzer -o $@ $^ $(SERVER_LIBS) $(LIBS)

$(EXAMPLES): %: %.o $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(LIBS)

$(BUILD)/tests/%.o: UM_CFLAGS += -Itests
$(BUILD)/tests/extending/%.o: UM_CFLAGS += -Itests/unit -Iexamples/extending

$(BUILD)/%.o: %.c $(BUILD)/flags | $(BUILD)/gen/commit.h
	@mkdir -p $(@D)
	$(call say,cc)
	$(Q)$(COMPILE) -c -o $@ $<

# The text of the built-in chat templates as numbers, for an array.
TEMPLATES := $(wildcard src/text/templates/*.jinja)
$(BUILD)/src/text/chat_builtin.o: $(TEMPLATES:src/text/%.jinja=$(BUILD)/gen/%.inc)
$(BUILD)/gen/templates/%.inc: src/text/templates/%.jinja
	@mkdir -p $(@D)
	$(Q)od -An -v -td1 $< | sed 's/[0-9][0-9]*/&,/g' > $@

# The files of the web page as arrays, and the list of them with a tag that changes with the content.
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

# These files are rewritten only when their content changes: other flags rebuild everything, another commit --version.
rewrite = mkdir -p $(@D); printf '%s\n' '$(1)' | cmp -s - $@ || printf '%s\n' '$(1)' > $@

$(BUILD)/flags: FORCE
	@pkg-config --exists --print-errors $(PACKAGES) $(SERVER_PACKAGES) || { echo "libraries are missing; run: make deps" >&2; exit 1; }
	@$(call rewrite,$(COMPILE))

$(BUILD)/gen/web-list: FORCE
	@$(call rewrite,$(WEB))

$(BUILD)/gen/commit.h: FORCE
	@$(call rewrite,#define UM_COMMIT "$(shell git describe --always --dirty 2>/dev/null || echo unknown)")

FORCE:
-include $(shell find $(BUILD)/src $(BUILD)/tests $(BUILD)/examples $(BUILD)/bench -name "*.d" 2>/dev/null)

# ---- Demonstration and tests -------------------------------------------------------------------------------------- #

# Few tokens a pass and a pause after each, so that the eye can follow.
DEMO := --model models/tiny-full --max-tokens 64 --block-size 64 --steps 24 --delay 120

demo: export PROMPT := $(PROMPT)
demo: ## install what is missing, build, watch the bundled model answer
	@tools/deps.sh build
	@$(MAKE) all
	@printf '\n$$ unmask run %s "%s"\n' '$(DEMO)' "$$PROMPT"
	@$(BUILD)/unmask run $(DEMO) "$$PROMPT"
	@if [ -t 0 ]; then exec $(BUILD)/unmask chat --model models/tiny-block; \
	 else echo; echo 'Ask it more: $(BUILD)/unmask chat --model models/tiny-block'; fi

check: ## install what is missing, build, run every test; SAN=..., TESTS='unit/*'
	@tools/deps.sh test
	@$(MAKE) all tests examples
	@tests/run.sh $(BUILD) $(TEST_PROGRAMS) $(TEST_SCRIPTS)

DATA ?= tests/data/tokenizers

vectors: $(VECTOR_TESTS) ## compare every tokenizer below DATA with its vectors, counts shown
	@for t in $(VECTOR_TESTS); do UM_TOKENIZER_DATA='$(DATA)' $$t || exit 1; done

fuzz: ## run each fuzz target for FUZZ_SECONDS
	@tools/deps.sh tools
	@$(MAKE) fuzz-programs CC=clang BUILD=build/fuzz SAN=fuzzer-no-link,address,undefined
	@for f in $(FUZZ_SRC:tests/fuzz/%_fuzz.c=%); do tools/fuzz.sh build/fuzz $$f $(FUZZ_SECONDS) || exit 1; done

fuzz-programs: $(FUZZ_PROGRAMS)

soak: tests/soak/engine_soak.c ## 100,000 requests under too few pages, then random ones and a server under load for SOAK_SECONDS each, then lm-eval
	@$(MAKE) $(BUILD)/unmask $(BUILD)/tests/soak/engine_soak $(BUILD)/tests/engine/pressure_test $(BUILD)/tests/server/mixed_load_test
	UM_TEST_REQUESTS=100000 $(BUILD)/tests/engine/pressure_test
	$(BUILD)/tests/soak/engine_soak $(SOAK_SECONDS)
	UNMASK=$(BUILD)/unmask UM_TEST_SECONDS=$(SOAK_SECONDS) $(BUILD)/tests/server/mixed_load_test
	tests/soak/lm_eval.sh $(BUILD)

$(BUILD)/tests/soak/engine_soak: %: %.o $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(LIBS)

bench: ## measure the bundled models, single operations and text, one after the other
	@$(MAKE) bench-models
	@$(MAKE) bench-ops
	@$(MAKE) bench-text

bench-models: all
	$(BUILD)/unmask bench --model models/tiny-block
	$(BUILD)/unmask bench --model models/tiny-full --requests 32 --steps 64

bench-ops: ## time the single operations of the cpu backend, linear layers beside oneDNN's
	-@tools/deps.sh bench
	@$(MAKE) $(BUILD)/bench/ops_bench
	$(BUILD)/bench/ops_bench

bench-text: $(BUILD)/bench/text_bench $(BUILD)/bench/chat_bench ## time the tokenizers below DATA, and the templates
	$(BUILD)/bench/text_bench '$(DATA)'
	$(BUILD)/bench/chat_bench '$(DATA)'

bench-tradeoffs: all ## measure what each choice of decoding costs: accuracy, tokens per forward, speed, memory; with plots
	@tools/deps.sh bench
	UNMASK=$(BUILD)/unmask bench/tradeoffs.sh

bench-batching: all ## compare 16 requests at once with one after the other, and where the time of a step goes
	UNMASK=$(BUILD)/unmask bench/batching.sh

bench-http: $(BUILD)/bench/http_bench ## time the HTTP server beside libevent's evhttp, and the memory of open streams
	$(BUILD)/bench/http_bench

# evhttp is the yardstick; the program itself does without.
$(BUILD)/bench/http_bench: %: %.o $(BUILD)/bench/timing.o $(CLI_PARTS) $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(SERVER_LIBS) $(shell pkg-config --libs libevent_extra) $(LIBS)

bench-serve-overhead: all $(SERVE_BENCHES) ## what the server itself costs: CPU of a request and an event, memory of a stream
	BUILD=$(BUILD) bench/serve_overhead.sh

# evhttp is the yardstick's alone; the program does without.
$(BUILD)/bench/evhttp_echo: SERVER_LIBS += $(shell pkg-config --libs libevent 2>/dev/null)
$(SERVE_BENCHES): %: %.o $(BUILD)/libserver.a $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(SERVER_LIBS) $(LIBS)

BENCHES := $(BUILD)/bench/ops_bench $(BUILD)/bench/text_bench $(BUILD)/bench/chat_bench

# oneDNN is a yardstick of the operations alone; they are timed without it too.
ONEDNN = $(shell printf '\043include <dnnl.h>\n' | $(CC) $(CPPFLAGS) -E -x c - > /dev/null 2>&1 && echo -ldnnl)

$(BUILD)/gen/onednn: FORCE
	@$(call rewrite,$(ONEDNN))

$(BUILD)/bench/onednn.o: $(BUILD)/gen/onednn
$(BUILD)/bench/ops_bench: $(BUILD)/bench/onednn.o
$(BUILD)/bench/ops_bench: LIBS += $(ONEDNN)

$(BENCHES): %: %.o $(BUILD)/bench/timing.o $(LIBRARY)
	$(call say,link)
	$(Q)$(LINK) -o $@ $^ $(LIBS)

# What the program says of itself; tests/cli/docs.sh fails when the files differ from it.
docs: $(BUILD)/unmask ## rewrite manual page, docs/options.md and shell completion from the option tables
	$(BUILD)/unmask help --format man > docs/unmask.1
	$(BUILD)/unmask help --format markdown > docs/options.md
	$(BUILD)/unmask help --format bash > completion/unmask.bash

# ---- Installation ------------------------------------------------------------------------------------------------- #

MODEL_FILES := $(wildcard models/*/*)
DOC_FILES := $(filter-out %.1,$(wildcard docs/*.* docs/*/*.*))
D := $(DESTDIR)$(PREFIX)
L := $(DESTDIR)$(LIBDIR)

$(BUILD)/unmask.pc: packaging/unmask.pc.in FORCE
	@sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' $< > $@

install: all $(BUILD)/unmask.pc ## install below DESTDIR and PREFIX
	install -d $D/bin $D/include $L/pkgconfig $D/share/man/man1 $D/share/bash-completion/completions
	install $(BUILD)/unmask $D/bin/unmask
	install -m 644 include/unmask.h $D/include/unmask.h
	install -m 644 $(LIBRARY) $L/libunmask.a
	install -m 755 $(SHARED) $L/$(notdir $(SHARED))
	ln -sf $(notdir $(SHARED)) $L/$(SONAME)
	ln -sf $(SONAME) $L/libunmask.so
	install -m 644 $(BUILD)/unmask.pc $L/pkgconfig/unmask.pc
	install -m 644 docs/unmask.1 $D/share/man/man1/unmask.1
	install -m 644 completion/unmask.bash $D/share/bash-completion/completions/unmask
	@for f in $(MODEL_FILES); do install -D -m 644 $$f $D/share/unmask/$$f || exit 1; done
	@for f in $(DOC_FILES); do install -D -m 644 $$f $D/share/doc/unmask/$${f#docs/} || exit 1; done
	@if [ -z '$(DESTDIR)' ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

SYSTEMD_DIR ?= /etc/systemd/system

install-service: ## install the unit for systemd, below DESTDIR
	install -d $(DESTDIR)$(SYSTEMD_DIR)
	sed 's|@PREFIX@|$(PREFIX)|' packaging/unmask.service.in > $(DESTDIR)$(SYSTEMD_DIR)/unmask.service

uninstall: ## remove what install put there
	rm -f $D/bin/unmask $D/include/unmask.h $L/libunmask.a $L/libunmask.so $L/$(SONAME) $L/$(notdir $(SHARED)) \
	      $L/pkgconfig/unmask.pc $D/share/man/man1/unmask.1 $D/share/bash-completion/completions/unmask
	rm -rf $D/share/unmask $D/share/doc/unmask

# ---- Tools -------------------------------------------------------------------------------------------------------- #

deps: ## install compiler, libraries, test and formatting tools
	@tools/deps.sh build
	@tools/deps.sh test
	@tools/deps.sh tools

CLANG_FORMAT ?= $(or $(shell command -v clang-format-14),clang-format)

format: ## rewrite every source in the style of .clang-format (version 14)
	$(CLANG_FORMAT) -i $(FORMATTED)

format-check: ## fail when a source is not formatted
	@$(CLANG_FORMAT) --version | grep -q 'version 14\.' || { echo "clang-format 14 is needed: make deps" >&2; exit 1; }
	@bad=; for f in $(FORMATTED); do $(CLANG_FORMAT) $$f | cmp -s - $$f || bad="$$bad $$f"; done; \
	 [ -z "$$bad" ] || { echo "not formatted; run make format:$$bad" >&2; exit 1; }

clean: ## remove build/
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

.PHONY: all tests examples demo check docs vectors fuzz fuzz-programs soak bench bench-models bench-ops bench-text bench-http bench-tradeoffs bench-batching bench-serve-overhead install install-service uninstall deps format format-check clean help FORCE
.SECONDARY:
.DELETE_ON_ERROR:
