"""The tiny configurations: every switch of a family's config.json, small enough to keep beside the tests.

A case with a letter is a variant of the case with the same name, and has what that case leaves out.
"""
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    name: str
    config: dict
    layout: str = ""            # layout of the experts, see families.stacked_experts
    same_as: str = ""           # the case with the same weights, which has the expected results
    twins: tuple = ()           # (expert, expert) with equal rows in the router: their scores tie


QWEN = dict(hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=256, max_position_embeddings=256, rope_theta=1000000.0, rope_scaling=None, rms_norm_eps=1e-6,
            hidden_act="silu", tie_word_embeddings=False, mask_token_id=250, eos_token_id=243, pad_token_id=243)

LLADA_B = dict(
    architectures=["LLaDAModelLM"], model_type="llada", d_model=32, n_heads=4, n_kv_heads=2, n_layers=2,
    mlp_hidden_size=None, mlp_ratio=4, vocab_size=280, embedding_size=288, max_sequence_length=256, rope=True,
    rope_full_precision=True, rope_theta=500000.0, rms_norm_eps=1e-5, layer_norm_type="rms", layer_norm_with_affine=True,
    attention_layer_norm=False, attention_layer_norm_with_affine=True, bias_for_layer_norm=False, block_type="llama",
    block_group_size=1, activation_type="silu", alibi=False, alibi_bias_max=8.0, multi_query_attention=None,
    include_bias=True, include_qkv_bias=True, input_emb_norm=True, scale_logits=True, weight_tying=True,
    use_cache=False, mask_token_id=275, eos_token_id=270, pad_token_id=270)

ILLADA = dict(
    architectures=["ILLaDAForCausalLM"], model_type="illada", hidden_size=32, intermediate_size=80, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, vocab_size=256, max_position_embeddings=256, rope_theta=500000.0,
    rope_scaling=None, rms_norm_eps=1e-6, layer_norm_eps=None, hidden_act="silu", attention_bias=False, mlp_bias=False,
    tie_word_embeddings=True, bos_token_id=0, pad_token_id=1, eos_token_id=2)

LLADA_MOE = dict(
    architectures=["LLaDAMoEModelLM"], model_type="lladamoe", hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, num_experts=8, num_experts_per_tok=3, expert_intermediate_size=16, dense_intermediate_size=48,
    shared_expert_intermediate_size=None, moe_layer_freq=[1, 1], moe_router_enable_expert_bias=False,
    moe_router_score_function="softmax", norm_topk_prob=True, routed_scaling_factor=1, rope_theta=50000.0,
    partial_rotary_factor=1.0, rope_scaling=None, qk_layernorm=True, clip_qkv=None, attention_bias=False,
    max_position_embeddings=256, rms_norm_eps=1e-5, vocab_size=256, hidden_act="silu", tie_word_embeddings=False,
    use_cache=False, mask_token_id=250, pad_token_id=249, eos_token_id=249)

DREAM = dict(QWEN, architectures=["DreamModel"], model_type="Dream", use_sliding_window=False, use_mrope=False,
             max_window_layers=2, attention_dropout=0.0, use_cache=False, bos_token_id=243)

DREAM_REASONER = dict(QWEN, architectures=["DreamForCausalLM"], model_type="Dream", head_dim=None, attention_bias=False,
                      block_size=4)

LLADA2 = dict(
    architectures=["LLaDA2MoeModelLM"], model_type="llada2_moe", hidden_size=32, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=80, moe_intermediate_size=16,
    num_experts=16, num_experts_per_tok=4, num_shared_experts=1, n_group=4, topk_group=2, first_k_dense_replace=1,
    score_function="sigmoid", moe_router_enable_expert_bias=True, router_dtype="fp32", norm_topk_prob=True,
    routed_scaling_factor=2.5, rms_norm_eps=1e-6, rope_theta=600000, partial_rotary_factor=0.5, rotary_dim=8,
    rope_scaling=None, max_position_embeddings=256, vocab_size=256, hidden_act="silu", use_bias=False, use_qkv_bias=False,
    use_qk_norm=True, use_rmsnorm=True, norm_head=False, tie_word_embeddings=False, embedding_dropout=0.0,
    output_dropout=0.0, attention_dropout=0.0, output_router_logits=False, use_cache=False, mask_token_id=250,
    pad_token_id=249, eos_token_id=249)

LLADA2_2 = dict(LLADA2, expert_capacity=6, block_size=4, delete_token_id=251, split_token_id=252)

SDAR = dict(QWEN, architectures=["SDARForCausalLM"], model_type="sdar", head_dim=16, attention_bias=False,
            attention_dropout=0.0, use_sliding_window=False, sliding_window=None, max_window_layers=2,
            fuse_cross_entropy=False, use_cache=False, block_size=4, bos_token_id=243)

SDAR_MOE = dict(QWEN, architectures=["SDARMoeForCausalLM"], model_type="sdar_moe", intermediate_size=48,
                moe_intermediate_size=16, num_experts=8, num_experts_per_tok=2, norm_topk_prob=True,
                decoder_sparse_step=1, mlp_only_layers=[0], head_dim=16, attention_bias=False, block_size=4)

RND1 = {key: value for key, value in SDAR_MOE.items() if key != "block_size"} | dict(
    architectures=["RND1"], model_type="rnd1", rope_scaling=False, sliding_window=False, mlp_only_layers=[])

FAST_DLLM_V2 = {key: value for key, value in QWEN.items() if key != "mask_token_id"} | dict(
    architectures=["Fast_dLLM_QwenForCausalLM"], model_type="Fast_dLLM_Qwen", tie_word_embeddings=True,
    layer_types=["full_attention", "full_attention"], use_sliding_window=False, bd_size=8)

STABLE_DIFFCODER = dict(
    architectures=["StableDiffcoderForCausalLM"], model_type="llama", hidden_size=32, intermediate_size=80,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=256, max_position_embeddings=256,
    rope_theta=500000.0, rope_scaling=None, rms_norm_eps=1e-6, attention_bias=True, mlp_bias=True, hidden_act="silu",
    tie_word_embeddings=False, bos_token_id=0, eos_token_id=2, pad_token_id=1)

WEDLM = dict(QWEN, architectures=["WeDLMForCausalLM"], model_type="wedlm", head_dim=16, attention_bias=False,
             qk_norm=True, use_sliding_window=False)

CASES = (
    Case("llada_b", LLADA_B),
    Case("illada", ILLADA),
    Case("illada_b", dict(ILLADA, layer_norm_eps=1e-5, attention_bias=True, mlp_bias=True)),
    Case("llada_moe", LLADA_MOE),
    Case("llada_moe_fused", dict(LLADA_MOE, architectures=["FusedLLaDAMoEModelLM"]), "fused", "llada_moe"),
    Case("llada_moe_b", dict(LLADA_MOE, moe_layer_freq=[0, 1], shared_expert_intermediate_size=24, clip_qkv=0.8,
                             moe_router_enable_expert_bias=True)),
    Case("dream", DREAM),
    Case("dream_reasoner", DREAM_REASONER),
    Case("dream_reasoner_b", dict(DREAM_REASONER, head_dim=16, attention_bias=True)),
    Case("llada2", LLADA2),
    Case("llada2_merged", LLADA2, "merged", "llada2"),
    Case("llada2_fused", LLADA2, "fused", "llada2"),
    Case("llada2_2", LLADA2_2),
    Case("llada2_2_tie", LLADA2_2, twins=((3, 11), (4, 5))),
    Case("sdar_b", dict(SDAR, tie_word_embeddings=True)),
    Case("sdar_moe", SDAR_MOE),
    Case("sdar_moe_b", dict(SDAR_MOE, norm_topk_prob=False)),
    Case("rnd1", RND1),
    Case("rnd1_b", dict(RND1, norm_topk_prob=False)),
    Case("fast_dllm_v2_tied", FAST_DLLM_V2),
    Case("stable_diffcoder_b", STABLE_DIFFCODER),
    Case("wedlm", WEDLM),
    Case("wedlm_7b", dict(WEDLM, head_dim=8, attention_bias=True, qk_norm=False)),
)
