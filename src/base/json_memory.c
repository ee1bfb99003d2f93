/* An upper bound of the memory that jansson takes for a JSON text. Strangers can send a short text of very many small
 * values: 15 MB of "{}," become 1.2 GB. The bound is found by one walk over the text, before anything is allocated. */
#include "base/base.h"

/* Bytes that jansson 2.14 takes on a 64-bit machine, with the overhead of glibc's malloc. Tables double when they are
 * full, and the old table lives until its values are in the new one; so a value in a table counts three times.
 * tests/unit/base_json_memory_test.c compares the sums with what malloc was asked for. */
enum {
    OBJECT_BYTES = 256, /* an object and its first table */
    ARRAY_BYTES = 144,  /* an array and its first table */
    MEMBER_BYTES = 144, /* the node of a member, without its name, and its places in tables */
    ELEMENT_BYTES = 24, /* the places of an element in tables */
    STRING_BYTES = 112, /* a string without its bytes */
    NUMBER_BYTES = 32,
    LONG_NUMBER = 19, /* digits from which a number may become an object with one member (json_exact.c) */
};

size_t um_json_memory(um_str s) {
    size_t sum = 0;
    for (size_t at = 0, end; at < s.n; at = end) {
        end = at + 1;
        switch (s.p[at]) {
        case '{': sum += OBJECT_BYTES; break;
        case '[': sum += ARRAY_BYTES; break;
        case ':': sum += MEMBER_BYTES; break;
        case ',': sum += ELEMENT_BYTES; break;
        case '"':
            end = um_json_string_end(s, end);
            sum += STRING_BYTES + (end - at);
            break;
        default:
            if (!um_json_in_number(s.p[at])) break;
            while (end < s.n && um_json_in_number(s.p[end])) end++;
            sum += end - at < LONG_NUMBER ? NUMBER_BYTES : OBJECT_BYTES + MEMBER_BYTES + STRING_BYTES + (end - at);
        }
    }
    return sum;
}
