# For scripts that need an adapter: make_adapter DIR writes one for the checkpoint in MODEL. Sourced from the repository
# root, after tests/cli/claims.bash.
# Prints the value 0.125 as fp32, $1 times.
values() { printf '\0\0\0\076%.0s' $(seq "$1"); }
# Writes an adapter of rank 1 for the value projections of all layers to the folder $1.
make_adapter() {
    local i header= at=0
    mkdir -p "$1"
    echo '{"peft_type": "LORA", "r": 1, "lora_alpha": 16, "target_modules": ["o_proj"]}' > "$1/adapter_config.json"
    for i in $(seq 0 $((layers - 1))); do
        name=base_model.model.model.layers.$i.self_attn.o_proj
        header+=",\"$name.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[1,$in],\"data_offsets\":[$at,$((at + 4 * in))]}"
        at=$((at + 4 * in))
        header+=",\"$name.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[$out,1],\"data_offsets\":[$at,$((at + 4 * out))]}"
        at=$((at + 4 * out))
    done
    header="{${header:1}}"
    { bytes_of ${#header}; printf %s "$header"; values $((at / 4)); } > "$1/adapter_model.safetensors"
}
number() { grep -oE "\"$1\": *[0-9]+" "$MODEL/config.json" | grep -oE '[0-9]+$'; }
layers=$(number num_hidden_layers) out=$(number hidden_size) in=$(($(number num_attention_heads) * $(number head_dim)))
