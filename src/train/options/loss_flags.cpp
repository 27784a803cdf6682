// SPDX-License-Identifier: Apache-2.0
// The flags of the loss; terms of GRPO have Megatron's names, those of distillation torchtune's,
// that of DPO is TRL's.
#include "src/train/options/train_flags.hpp"
#include "src/train/options/training_loss.hpp"

namespace vocabpipe {

FlagGroup loss_flags(TrainingLoss& o) {
    PolicyLossOptions& p = o.policy;
    const auto coefficient = [](const char* name, float* value, const char* help) {
        return Flag{.names = name, .value = value, .help = help, .unit = "X", .range = at_least(0)};
    };
    return {.title = "Loss",
            .flags = {
                {.names = "--loss",
                 .value = named(&o.name, loss_name_from),
                 .help = "What is minimised: cross-entropy; or with --columns grpo, the clipped "
                         "objective of PPO and GRPO, distillation, against lists of a teacher, or "
                         "dpo, of pairs of samples, the better one first",
                 .unit = "NAME",
                 .choices = {"cross-entropy", "grpo", "distillation", "dpo"}},
                {.names = "--grpo-clamp-eps-lower",
                 .value = &p.clip_low,
                 .help = "How far below 1 the ratio to the old policy still counts",
                 .unit = "X",
                 .range = between(0, 1)},
                coefficient("--grpo-clamp-eps-upper", &p.clip_high,
                            "How far above 1 the ratio still counts"),
                coefficient("--grpo-kl-beta", &p.kl_coefficient,
                            "Weight of the divergence from the reference; 0: none is read"),
                {.names = "--grpo-kl-estimator",
                 .value = named(&p.kl, kl_estimator_from),
                 .help = "Schulman's estimator of the divergence",
                 .unit = "NAME",
                 .choices = {"k1", "k2", "k3"}},
                coefficient("--grpo-entropy-term-weight", &p.entropy_coefficient,
                            "Weight of the entropy, which is rewarded"),
                {.names = "--kd-top-k",
                 .value = &o.distillation.top_k,
                 .help = "Entries of the teacher's list of every token",
                 .unit = "K",
                 .range = between(1, TokenRecords::kMostBest)},
                {.names = "--kd-ratio",
                 .value = &o.distillation.kl_share,
                 .help = "Share of the divergence from the teacher; the rest is the cross-entropy",
                 .unit = "X",
                 .range = between(0, 1)},
                {.names = "--dpo-beta",
                 .value = &o.dpo_beta,
                 .help = "How strongly pairs hold the model near the reference",
                 .unit = "X",
                 .range = above(0)},
            }};
}

}  // namespace vocabpipe
