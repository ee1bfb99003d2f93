/* apis: the APIs that generate, and the endpoints that each file of this folder defines. */
#ifndef UM_APIS_H
#define UM_APIS_H

#include "server/generate/api.h"
#include "server/service/endpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const um_api um_api_chat, um_api_completions, um_api_native, um_api_sglang, um_api_llama, um_api_results,
    um_api_messages, um_api_responses;
/* Answers the requests that wait until the workers sleep or are awake. Called when the state of a worker changes, and
 * when the server stops. */
void um_sleep_on_change(um_service *s);

extern const um_endpoint_set um_sleep_endpoints, um_adapters_endpoints, um_chat_endpoints, um_completions_endpoints,
    um_conversations_endpoints, um_llama_endpoints, um_messages_endpoints, um_models_endpoints, um_native_endpoints,
    um_ops_endpoints, um_options_endpoints, um_page_endpoints, um_responses_endpoints, um_results_endpoints,
    um_runtime_endpoints, um_score_endpoints, um_sglang_endpoints, um_tokens_endpoints;

#ifdef __cplusplus
}
#endif
#endif
