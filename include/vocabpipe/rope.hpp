// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// How rotary positions are stretched beyond the trained length; names as in Hugging Face's
/// rope_type.
enum class RopeScaling : uint8_t {
    none,
    linear,    ///< positions divided by `factor` (Chen et al. 2023)
    dynamic,   ///< theta grows with sequences beyond the trained length; up to there as none
    llama3,    ///< by wavelength: long ones divided by `factor`, short ones kept, a ramp between
    yarn,      ///< Peng et al. 2023: a ramp over dimensions, and a factor on cos and sin
    longrope,  ///< Ding et al. 2024: a divisor for every pair, and a factor on cos and sin
};

/// Rotary positions of d columns: angle of dimension pair i at position t is t theta^(-2 i / d).
struct Rope {
    double theta = 10000;                     ///< base of the angles
    RopeScaling scaling = RopeScaling::none;  ///< beyond the trained length
    double factor = 1;                        ///< ratio of the extended to the trained length
    double low_freq_factor = 1;               ///< llama3
    double high_freq_factor = 4;              ///< llama3
    double beta_fast = 32;                    ///< yarn
    double beta_slow = 1;                     ///< yarn
    double attention_factor = 0;              ///< factor on cos and sin; 0: follows from `factor`
    double mscale = 0;          ///< yarn: with mscale_all_dim, decides attention_factor
    double mscale_all_dim = 0;  ///< likewise; in DeepSeek's models every scaling's, of the scores
    bool truncate = true;       ///< yarn: the ramp's ends are whole dimensions
    /// The trained length, for all but linear (for dynamic max_position_embeddings); 0: not given.
    int64_t original_positions = 0;
    std::vector<double> short_factors = {};  ///< longrope: [pair], of at most original_positions
    std::vector<double> long_factors = {};   ///< longrope: [pair], of longer sequences

    /// Member by member.
    bool operator==(const Rope&) const = default;
};

/// Row t of `positions`: cos of the angles, then sin, (positions, d), d rounded up to pairs.
/// Computed in double. d: columns of a head that are rotated. `positions` is the length of the
/// sequences; by it longrope chooses its divisors and dynamic its theta.
[[nodiscard]] std::vector<float> rotary_table(const Rope& rope, int64_t d, int64_t positions);

}  // namespace vocabpipe
