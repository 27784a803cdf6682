// SPDX-License-Identifier: Apache-2.0
// The learning-rate schedule of a run from its flags, whose lengths are all in steps or all in
// samples.
#include "src/train/options/check_options.hpp"
#include "src/train/options/train_options.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/learning_rate.hpp"

#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

template <typename T>
[[noreturn]] void refuse(const char* flag, T value, const std::string& why) {
    std::ostringstream out;
    out << flag << " " << value << ": " << why;
    throw UsageError(out.str());
}

std::string text(double value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

/// A flag for a length, and its value; none: not given.
struct Length {
    const char* flag;
    std::optional<int64_t> value;
};

/// The lengths that flags give, all in steps or all in samples.
struct Lengths {
    const char* unit;
    Length run, warmup, decay, wsd_decay;

    [[nodiscard]] const Length& whole_decay() const { return decay.value ? decay : run; }
};

Lengths lengths_in_steps(const TrainOptions& o) {
    const LearningRateOptions& l = o.learning_rate;
    Lengths lengths{.unit = "steps",
                    .run = {"--train-iters", o.train_iters},
                    .warmup = {"--lr-warmup-iters", std::nullopt},
                    .decay = {"--lr-decay-iters", l.decay_iters},
                    .wsd_decay = {"--lr-wsd-decay-iters", l.wsd_decay_iters}};
    if (o.lr_warmup_iters != 0) lengths.warmup.value = o.lr_warmup_iters;
    return lengths;
}

Lengths lengths_in_samples(const TrainOptions& o) {
    const LearningRateOptions& l = o.learning_rate;
    return {.unit = "samples",
            .run = {"--train-samples", o.train_samples},
            .warmup = {"--lr-warmup-samples", l.warmup_samples},
            .decay = {"--lr-decay-samples", l.decay_samples},
            .wsd_decay = {"--lr-wsd-decay-samples", l.wsd_decay_samples}};
}

/// The lengths that were given. UsageError if some are in steps and others in samples.
Lengths lengths_of(const TrainOptions& o) {
    Lengths used = lengths_in_steps(o);
    Lengths others = lengths_in_samples(o);
    if (o.train_samples) std::swap(used, others);
    const auto refuse_other = [&](const Length& other, const Length& instead) {
        if (!other.value) return;
        refuse(other.flag, *other.value,
               std::string("counts ") + others.unit + ", but " + used.run.flag + " " + used.unit +
                   "; use " + instead.flag);
    };
    refuse_other(others.warmup, used.warmup);
    refuse_other(others.decay, used.decay);
    refuse_other(others.wsd_decay, used.wsd_decay);
    return used;
}

int64_t warmup_of(const std::optional<double>& fraction, const Lengths& lengths) {
    const Length& decay = lengths.whole_decay();
    const int64_t given = lengths.warmup.value.value_or(0);
    if (given < 0 || given > *decay.value) {
        refuse(lengths.warmup.flag, given,
               std::string("must be between 0 and ") + decay.flag + " " +
                   std::to_string(*decay.value));
    }
    if (!fraction) return given;
    if (given > 0) {
        refuse("--lr-warmup-fraction", *fraction,
               std::string(lengths.warmup.flag) + " " + std::to_string(given) +
                   " already sets the warm-up; use only one of them");
    }
    if (!(*fraction >= 0 && *fraction <= 1)) {
        refuse("--lr-warmup-fraction", *fraction, "must be between 0 and 1");
    }
    return std::llround(*fraction * static_cast<double>(*decay.value));
}

void check_wsd(const LearningRateOptions& l, const Lengths& lengths,
               const LearningRateSchedule& s) {
    const Length& decay = lengths.wsd_decay;
    if (s.style != DecayStyle::wsd) {
        const std::string why =
            "requires --lr-decay-style WSD, got " + std::string(to_string(s.style));
        if (decay.value) refuse(decay.flag, *decay.value, why);
        if (l.wsd_style) refuse("--lr-wsd-decay-style", to_string(*l.wsd_style), why);
        return;
    }
    if (!decay.value) {
        throw UsageError("--lr-decay-style WSD: requires " + std::string(decay.flag) +
                         " N, the length of the decay at the end");
    }
    if (*decay.value < 1 || *decay.value > s.decay_iters - s.warmup_iters) {
        refuse(decay.flag, *decay.value,
               "must be between 1 and the " + std::to_string(s.decay_iters - s.warmup_iters) + " " +
                   lengths.unit + " after the warm-up");
    }
}

}  // namespace

LearningRateSchedule learning_rate_schedule(const TrainOptions& o) {
    const LearningRateOptions& l = o.learning_rate;
    // Written so that NaN fails as well.
    if (!(o.lr >= 0) || !std::isfinite(o.lr)) {
        refuse("--lr", o.lr, "must be a finite number, at least 0");
    }
    if (!(o.min_lr >= 0 && o.min_lr <= o.lr)) {
        refuse("--min-lr", o.min_lr, "must be between 0 and --lr " + text(o.lr));
    }
    const Lengths lengths = lengths_of(o);
    if (lengths.decay.value && *lengths.decay.value < 1) {
        refuse(lengths.decay.flag, *lengths.decay.value, "must be at least 1");
    }
    LearningRateSchedule s;
    s.by_samples = o.train_samples.has_value();
    s.lr = o.lr;
    s.min_lr = o.min_lr;
    s.decay_iters = *lengths.whole_decay().value;
    s.warmup_iters = warmup_of(l.warmup_fraction, lengths);
    s.style = l.style;
    if (l.warmup_init) {
        if (!(*l.warmup_init >= 0 && *l.warmup_init <= o.lr)) {
            refuse("--lr-warmup-init", *l.warmup_init, "must be between 0 and --lr " + text(o.lr));
        }
        if (s.warmup_iters == 0) {
            refuse("--lr-warmup-init", *l.warmup_init,
                   std::string("requires a warm-up; set ") + lengths.warmup.flag +
                       " or --lr-warmup-fraction");
        }
        s.warmup_init = *l.warmup_init;
    }
    check_wsd(l, lengths, s);
    s.wsd_style = l.wsd_style.value_or(WsdDecayStyle::exponential);
    s.wsd_decay_iters = lengths.wsd_decay.value.value_or(0);
    return s;
}

}  // namespace vocabpipe
