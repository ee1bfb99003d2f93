/* Errors: a code and one sentence, and the names of the codes. */
#include "base/base.h"

#define VERSION_TEXT(a, b, c)  #a "." #b "." #c
#define VERSION_VALUE(a, b, c) VERSION_TEXT(a, b, c)

const char *um_version(void) { return VERSION_VALUE(UM_VERSION_MAJOR, UM_VERSION_MINOR, UM_VERSION_PATCH); }

const char *um_status_name(um_status s) {
    switch (s) {
#define UM_X(name, value, text)                                                                                        \
    case name: return #name;
        UM_STATUS_MAP(UM_X)
#undef UM_X
    }
    return "unknown status";
}

const char *um_status_text(um_status s) {
    switch (s) {
#define UM_X(name, value, text)                                                                                        \
    case name: return text;
        UM_STATUS_MAP(UM_X)
#undef UM_X
    }
    return "unknown status";
}

/* Copies a text and truncates it to size - 1 bytes, but never in the middle of a UTF-8 character. */
static void copy_text(char *to, size_t size, const char *text) {
    size_t n = UM_MIN(strlen(text), size - 1);
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) n--;
    memcpy(to, text, n);
    to[n] = '\0';
}

static void set_message(um_err *err, const char *text) { copy_text(err->msg, sizeof err->msg, text); }

/* Formats into a temporary buffer first, because an argument may be the message that is about to be replaced. The
 * buffer holds one byte more than a message, so that set_message sees the byte after the cut. */
static void format_message(um_err *err, const char *fmt, va_list ap) {
    char text[UM_ERR_MAX + 1];
    vsnprintf(text, sizeof text, fmt, ap);
    set_message(err, text);
}

um_status um_fail(um_err *err, um_status code, const char *fmt, ...) {
    assert(code < 0);
    if (!err) return code;
    va_list ap;
    va_start(ap, fmt);
    format_message(err, fmt, ap);
    va_end(ap);
    err->code = code;
    err->param[0] = '\0';
    return code;
}

um_status um_fail_about(um_err *err, um_status s, const char *param) {
    if (s && err && !err->param[0]) copy_text(err->param, sizeof err->param, param);
    return s;
}

um_status um_fail_param(um_err *err, um_status code, const char *param, const char *fmt, ...) {
    char text[UM_ERR_MAX + 1];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return um_fail_about(err, um_fail(err, code, "%s: %s", param, text), param);
}

um_status um_fail_in(um_err *err, const char *fmt, ...) {
    assert(err && err->code < 0);
    char context[UM_ERR_MAX], text[2 * UM_ERR_MAX + 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    snprintf(text, sizeof text, "%s: %s", context, err->msg);
    set_message(err, text);
    return err->code;
}
