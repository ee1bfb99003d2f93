/* Compares the declarations of src/cuda/nccl.h with those of NCCL, where its header is installed. Nothing runs. */
#if __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>

#include "cuda/nccl.h"

/* Two arguments are passed alike: pointers, numbers of the same size, or the same structure. */
template <typename A, typename B>
constexpr bool same_value =
    sizeof(A) == sizeof(B) &&
    alignof(A) == alignof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&std::is_class_v<A> == std::is_class_v<B>;

template <typename A, typename B> constexpr bool same_function = false;
template <typename R, typename... A, typename S, typename... B>
constexpr bool same_function<R (*)(A...), S (*)(B...)> = []() {
    if constexpr (sizeof...(A) != sizeof...(B)) return false;
    else return same_value<R, S> && (same_value<A, B> && ...);
}();

#define SAME(field, function)                                                                                          \
    static_assert(same_function<decltype(um_nccl::field), decltype(&function)>, #function " has other arguments")
SAME(get_version, ncclGetVersion);
SAME(get_unique_id, ncclGetUniqueId);
SAME(comm_init_rank, ncclCommInitRank);
SAME(comm_abort, ncclCommAbort);
SAME(comm_get_async_error, ncclCommGetAsyncError);
SAME(get_error_string, ncclGetErrorString);
SAME(get_last_error, ncclGetLastError);
SAME(group_start, ncclGroupStart);
SAME(group_end, ncclGroupEnd);
SAME(send, ncclSend);
SAME(recv, ncclRecv);
SAME(all_gather, ncclAllGather);
static_assert(sizeof(um_nccl_id) == sizeof(ncclUniqueId) && sizeof(um_nccl_id) == NCCL_UNIQUE_ID_BYTES, "id");
static_assert((int)UM_NCCL_SUCCESS == (int)ncclSuccess && (int)UM_NCCL_IN_PROGRESS == (int)ncclInProgress &&
                  (int)UM_NCCL_BYTES == (int)ncclUint8,
              "numbers");
#endif
