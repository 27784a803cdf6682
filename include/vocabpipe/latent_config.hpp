// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vocabpipe {

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): keys and values of all
/// heads are products of one short latent per token, and all heads share one key with rotary
/// positions.
struct LatentConfig {
    int64_t kv_rank = 0;     ///< columns of the latent of k and v; 0: a model without latents
    int64_t q_rank = 0;      ///< columns of the latent of q; 0: q is a product of the layer's input
    int64_t key_size = 0;    ///< columns of a head of q and k without positions
    int64_t rope_size = 0;   ///< columns of a head of q, and of the shared key, with positions
    int64_t value_size = 0;  ///< columns of a head of v
    /// Files have the two columns of a rotary pair side by side. Held weights have all first ones,
    /// then all second ones.
    bool interleaved = true;
};

}  // namespace vocabpipe
