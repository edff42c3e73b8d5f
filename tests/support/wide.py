"""Models whose rows are whole blocks of 256, so that every type can hold them."""

from __future__ import annotations

from support.tiny import TinyModel

# The towers' feed-forward layers are no multiple of any block, as in Qwen2.5-VL.
WIDE = {
    model.name: model
    for model in (
        TinyModel(
            name="wide25",
            family="qwen2_5_vl",
            seed=11,
            hidden=256,
            ffn=512,
            layers=8,
            heads=4,
            kv_heads=1,
            mrope_section=(8, 12, 12),
            v_hidden=256,
            v_ffn=300,
            v_layers=2,
            v_heads=4,
            wa_pattern=2,
        ),
        TinyModel(
            name="wide2",
            family="qwen2_vl",
            seed=12,
            hidden=256,
            ffn=256,
            layers=2,
            heads=4,
            kv_heads=2,
            mrope_section=(8, 12, 12),
            tied=True,
            v_hidden=256,
            v_ffn=300,
            v_layers=2,
            v_heads=4,
        ),
    )
}
