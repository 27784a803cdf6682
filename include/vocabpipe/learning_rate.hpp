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

/// How the rate falls at the end of DecayStyle::wsd; Megatron's --lr-wsd-decay-style.
enum class WsdDecayStyle : uint8_t { linear, cosine, exponential, minus_sqrt };

/// Throw UsageError for unknown names. Names are Megatron's, "WSD" in capitals.
[[nodiscard]] DecayStyle decay_style_from(std::string_view name);
[[nodiscard]] WsdDecayStyle wsd_decay_style_from(std::string_view name);
[[nodiscard]] std::string_view to_string(DecayStyle style);
[[nodiscard]] std::string_view to_string(WsdDecayStyle style);

/// The values of the flags named in the comments.
struct LearningRateOptions {
    std::optional<int64_t> decay_iters;      ///< --lr-decay-iters; none: --train-iters
    std::optional<double> warmup_fraction;   ///< --lr-warmup-fraction, of the decay_iters
    std::optional<double> warmup_init;       ///< --lr-warmup-init; none: 0
    DecayStyle style = DecayStyle::cosine;   ///< --lr-decay-style; what most recipes use
    std::optional<WsdDecayStyle> wsd_style;  ///< --lr-wsd-decay-style; none: exponential
    std::optional<int64_t> wsd_decay_iters;  ///< --lr-wsd-decay-iters; needed by WSD

    // The same in samples, for a run whose length is in samples (--train-samples).
    std::optional<int64_t> warmup_samples;     ///< --lr-warmup-samples; none: no warm-up
    std::optional<int64_t> decay_samples;      ///< --lr-decay-samples; none: --train-samples
    std::optional<int64_t> wsd_decay_samples;  ///< --lr-wsd-decay-samples; needed by WSD
};

/// The learning rate as a function of the updates done so far, as in Megatron's scheduler. The next
/// update uses it: N updates use after(0) to after(N - 1). So with a warm-up the first update uses
/// warmup_init, and update warmup_iters + 1 is the first at the top.
struct LearningRateSchedule {
    double lr = 3e-4;                                      ///< the top
    double min_lr = 0;                                     ///< at the end of the decay
    int64_t warmup_iters = 0;                              ///< updates before the top
    int64_t decay_iters = 1;                               ///< updates before min_lr
    double warmup_init = 0;                                ///< before the first update
    DecayStyle style = DecayStyle::cosine;                 ///< after the warm-up
    WsdDecayStyle wsd_style = WsdDecayStyle::exponential;  ///< of DecayStyle::wsd
    int64_t wsd_decay_iters = 0;                           ///< last updates, in which it falls
    /// Lengths are in samples, and after() takes the samples that all updates so far have read.
    bool by_samples = false;

    /// `updates` from 0 on.
    [[nodiscard]] double after(int64_t updates) const;
};

}  // namespace vocabpipe
