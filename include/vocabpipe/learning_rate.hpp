// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace vocabpipe {

/// How the learning rate falls after the warm-up; Megatron's --lr-decay-style.
enum class DecayStyle : uint8_t {
    constant,
    linear,
    cosine,
    wsd,  ///< warm-up, stable, decay: stays at the top until the last wsd_decay_iters steps
};

/// How it falls at the end of DecayStyle::wsd; Megatron's --lr-wsd-decay-style.
enum class WsdDecayStyle : uint8_t { linear, cosine, exponential, minus_sqrt };

/// Throw UsageError for another name; those of Megatron: "WSD" in capitals.
[[nodiscard]] DecayStyle decay_style_from(std::string_view name);
[[nodiscard]] WsdDecayStyle wsd_decay_style_from(std::string_view name);
[[nodiscard]] std::string_view to_string(DecayStyle style);
[[nodiscard]] std::string_view to_string(WsdDecayStyle style);

/// What the flags say; the comments name them.
struct LearningRateOptions {
    std::optional<int64_t> decay_iters;      ///< --lr-decay-iters; none: --train-iters
    std::optional<double> warmup_fraction;   ///< --lr-warmup-fraction, of the decay_iters
    std::optional<double> warmup_init;       ///< --lr-warmup-init; none: 0
    DecayStyle style = DecayStyle::cosine;   ///< --lr-decay-style; what most recipes use
    std::optional<WsdDecayStyle> wsd_style;  ///< --lr-wsd-decay-style; none: exponential
    std::optional<int64_t> wsd_decay_iters;  ///< --lr-wsd-decay-iters; needed by WSD
};

/// The learning rate of every step. Steps count from 1, and step n has what Megatron's scheduler
/// gives after n steps: the last step of the warm-up is at the top, step decay_iters at min_lr.
struct LearningRateSchedule {
    double lr = 3e-4;                                      ///< the top
    double min_lr = 0;                                     ///< at the end of the decay
    int64_t warmup_iters = 0;                              ///< steps of warm-up
    int64_t decay_iters = 1;                               ///< the step that is at min_lr first
    double warmup_init = 0;                                ///< where the warm-up begins: of step 0
    DecayStyle style = DecayStyle::cosine;                 ///< after the warm-up
    WsdDecayStyle wsd_style = WsdDecayStyle::exponential;  ///< of DecayStyle::wsd
    int64_t wsd_decay_iters = 0;                           ///< last steps, in which it falls

    /// Of step 1, 2, ...
    [[nodiscard]] double at(int64_t step) const;
};

}  // namespace vocabpipe
