/* Replaces three libraries to which Debian's static libzmq refers: OpenPGM and NORM, which are transports, and Kerberos
 * (GSSAPI), which Debian does not have as a static library. `make dist` links this file. unmask connects over TCP and
 * Unix sockets without authentication, so libzmq calls only pgm_init and pgm_shutdown, when it starts and stops. The
 * linker reports a name that is missing here. */
#include <stdio.h>
#include <stdlib.h>

_Noreturn static void refuse(const char *name) {
    fprintf(stderr, "unmask: libzmq called %s, but this program is linked without PGM, NORM and Kerberos\n", name);
    abort();
}

#define REFUSED(name)                                                                                                  \
    void name(void);                                                                                                   \
    void name(void) { refuse(#name); }                                                                                 \
    extern void name(void)
REFUSED(NormCreateInstance);
REFUSED(NormCreateSession);
REFUSED(NormDestroyInstance);
REFUSED(NormDestroySession);
REFUSED(NormGetDescriptor);
REFUSED(NormGetNextEvent);
REFUSED(NormGetRandomSessionId);
REFUSED(NormIsUnicastAddress);
REFUSED(NormNodeDelete);
REFUSED(NormObjectGetType);
REFUSED(NormObjectGetUserData);
REFUSED(NormObjectSetUserData);
REFUSED(NormSetCongestionControl);
REFUSED(NormSetDefaultSyncPolicy);
REFUSED(NormSetDefaultUnicastNack);
REFUSED(NormSetLoopback);
REFUSED(NormSetMulticastInterface);
REFUSED(NormSetRxPortReuse);
REFUSED(NormSetTTL);
REFUSED(NormStartReceiver);
REFUSED(NormStartSender);
REFUSED(NormStopInstance);
REFUSED(NormStopReceiver);
REFUSED(NormStopSender);
REFUSED(NormStreamFlush);
REFUSED(NormStreamOpen);
REFUSED(NormStreamRead);
REFUSED(NormStreamSeekMsgStart);
REFUSED(NormStreamWrite);
REFUSED(gss_accept_sec_context);
REFUSED(gss_acquire_cred);
REFUSED(gss_delete_sec_context);
REFUSED(gss_display_name);
REFUSED(gss_import_name);
REFUSED(gss_init_sec_context);
REFUSED(gss_release_buffer);
REFUSED(gss_release_cred);
REFUSED(gss_release_name);
REFUSED(gss_unwrap);
REFUSED(gss_wrap);
REFUSED(pgm_bind3);
REFUSED(pgm_close);
REFUSED(pgm_connect);
REFUSED(pgm_error_free);
REFUSED(pgm_free);
REFUSED(pgm_freeaddrinfo);
REFUSED(pgm_getaddrinfo);
REFUSED(pgm_getsockopt);
REFUSED(pgm_gsi_create_from_data);
REFUSED(pgm_recvmsgv);
REFUSED(pgm_send);
REFUSED(pgm_setsockopt);
REFUSED(pgm_socket);

/* Constants that only callers of these functions read. */
#define CONSTANT(name)                                                                                                 \
    extern const void *const name;                                                                                     \
    const void *const name = NULL
CONSTANT(GSS_C_NT_HOSTBASED_SERVICE);
CONSTANT(GSS_C_NT_USER_NAME);
CONSTANT(NORM_INSTANCE_INVALID);
CONSTANT(NORM_NODE_ANY);
CONSTANT(NORM_OBJECT_INVALID);
CONSTANT(NORM_SESSION_INVALID);

/* Return true, for success. */
int pgm_init(void *error);
int pgm_init(void *error) {
    (void)error;
    return 1;
}

int pgm_shutdown(void);
int pgm_shutdown(void) { return 1; }
