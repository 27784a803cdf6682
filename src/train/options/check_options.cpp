// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/check_options.hpp"
#include "src/model/adapters.hpp"
#include "src/model/check_context_parallel.hpp"
#include "src/model/check_expert_parallel.hpp"
#include "src/model/check_tensor_parallel.hpp"

#include "src/model/config_json/model_config_json.hpp"
#include "src/model/frozen_parameters.hpp"
#include "src/model/parameter_groups.hpp"
#include "src/model/parameters.hpp"
#include "src/step/same_on_every_rank.hpp"
#include "src/support/crc32c.hpp"
#include "src/support/joined.hpp"
#include "src/train/data/data_split.hpp"
#include "src/train/options/batch_size_schedule.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// Limit: programs list every pass of a step on every rank, and with more of them they would fill
/// the memory.
constexpr int64_t kMostMicrobatches = int64_t{1} << 16;

template <typename T>
std::string text(T value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

void at_most(const char* flag, int64_t value, int64_t most) {
    if (value <= most) return;
    throw UsageError(std::string(flag) + " " + text(value) + ": must be at most " + text(most));
}

/// Written so that NaN fails as well.
void demand(bool good, const char* flag, double value, const char* limit) {
    if (!good || !std::isfinite(value)) {
        throw UsageError(std::string(flag) + " " + text(value) + ": must be " + limit);
    }
}

/// Checksums of the model, with what --model and --load set without a flag of its own (positions,
/// biases, windows by layer, caps), and of the text of --product-choices.
std::vector<std::string> contents_of(const TrainOptions& o) {
    const auto checksum = [](const std::string& contents) {
        return text(crc32c(std::as_bytes(std::span(contents))));
    };
    std::vector<std::string> lines{"config.json with the checksum " +
                                   checksum(print_model_config(o.model))};
    if (!o.gpu.product_choices.empty()) {
        lines.push_back("--product-choices with the checksum " + checksum(o.gpu.product_choices));
    }
    return lines;
}

}  // namespace

std::vector<std::string> shared_flags(const TrainOptions& options) {
    TrainOptions o = options;  // the rows need a mutable object
    UnresolvedFlags unresolved;
    std::vector<std::string> flags;
    for (std::string& line : compared_flags(train_flags(o, unresolved))) {
        flags.push_back(std::move(line));
    }
    for (std::string& line : contents_of(o)) flags.push_back(std::move(line));
    return flags;
}

std::vector<std::string> bit_flags(const TrainOptions& options) {
    TrainOptions o = options;
    UnresolvedFlags unresolved;
    std::vector<std::string> flags = bit_flags(train_flags(o, unresolved));
    for (std::string& line : contents_of(o)) flags.push_back(std::move(line));
    return flags;
}

void check_sizes(const ModelConfig& model) {
    ModelConfig m = model;
    UnresolvedFlags unresolved;
    check_ranges({architecture_flags(m, unresolved)});
    const int64_t widest_head =
        std::max({m.kv_channels, m.latent.key_size + m.latent.rope_size, m.latent.value_size});
    const int64_t columns = m.num_attention_heads * widest_head;
    if (columns > kLargestSize) {
        throw UsageError((m.kv_channels == widest_head ? "--kv-channels " : "--qk-head-dim ") +
                         text(widest_head) + ": with --num-attention-heads " +
                         text(m.num_attention_heads) + ", attention has " + text(columns) +
                         " columns; must be at most " + text(kLargestSize));
    }
    demand(m.norm_epsilon > 0, "--norm-epsilon", m.norm_epsilon, "a finite positive number");
    demand(m.rope.theta > 1, "--rotary-base", m.rope.theta, "a finite number above 1");
}

namespace {

/// Ranks that share the experts of a layer, which are not more than there are.
int expert_ranks(const TrainOptions& o, int ranks) {
    const int x = o.expert_tensor_parallel_size;
    const int64_t team = int64_t{o.expert_model_parallel_size} * x;
    if (x > 1 && team > ranks) {
        throw UsageError("--expert-tensor-parallel-size " + text(x) +
                         ": times --expert-model-parallel-size " +
                         text(o.expert_model_parallel_size) + " these are " + text(team) +
                         " ranks, but there are only " + text(ranks) +
                         "; use a smaller size, or start more ranks");
    }
    return static_cast<int>(team);
}

/// Checks that teams of `size` divide the teams of the axes inside of them, which have `team` ranks
/// by the flags `with`.
void check_divides(const std::string& flag, int size, int ranks, int team,
                   const std::string& with) {
    if (size >= 1 && ranks / team % size == 0) return;
    throw UsageError(flag + " " + text(size) + ": " +
                     (team == 1
                          ? "must divide the number of ranks, " + text(ranks)
                          : "with " + with + ", must divide the " + text(ranks / team) +
                                " groups of " + text(team) + " among " + text(ranks) + " ranks"));
}

}  // namespace

Mesh mesh_of(const TrainOptions& o, int ranks) {
    const int tensor = o.tensor_model_parallel_size;
    check_divides("--tensor-model-parallel-size", tensor, ranks, 1, "");
    const int context = o.context_parallel_size;
    std::string with;
    if (tensor > 1) with = "--tensor-model-parallel-size " + text(tensor);
    check_divides("--context-parallel-size", context, ranks, tensor, with);
    if (context > 1) {
        with += (with.empty() ? "" : " and ") + ("--context-parallel-size " + text(context));
    }
    const int team = context * tensor;
    const int given = o.pipeline_model_parallel_size;
    const int pipeline = given == 0 ? ranks / team : given;
    check_divides("--pipeline-model-parallel-size", pipeline, ranks, team, with);
    const Mesh mesh{.pipeline = pipeline,
                    .data = ranks / team / pipeline,
                    .tensor = tensor,
                    .expert = expert_ranks(o, ranks),
                    .context = context};
    check_expert_ranks(mesh, o.expert_tensor_parallel_size);
    return mesh;
}

namespace {

/// Throws for combinations that context, tensor or expert ranks do not support yet.
void check_teams(const TrainOptions& o, const Mesh& mesh) {
    const auto refuse = [](int size, const std::string& flag, bool given, const std::string& what,
                           const std::string& remedy) {
        if (size > 1 && given)
            throw UsageError(flag + " " + text(size) + ": " + what + "; " + remedy);
    };
    refuse(mesh.tensor, "--tensor-model-parallel-size", o.reductions == Reductions::native,
           "sums over tensor ranks are ordered", "use --reduction ordered");
    if (o.zero.stage == 1 && o.zero.reshard_after != ReshardAfter::use) {
        throw UsageError("--reshard-after " + std::string(to_string(o.zero.reshard_after)) +
                         ": requires --zero-stage 2 or 3");
    }
    if (o.zero.stage < 3 && o.zero.gather_ahead != ZeroOptions().gather_ahead) {
        throw UsageError("--gather-ahead " + text(o.zero.gather_ahead) +
                         ": requires --zero-stage 3, whose weights are gathered");
    }
    if (o.blocking_exchanges && mesh.tensor == 1 && mesh.context == 1 && mesh.expert == 1) {
        throw UsageError(
            "--blocking-exchanges: there are no tensor, context or expert ranks that exchange "
            "anything; leave it out");
    }
    for (const auto& [size, kind, flag] :
         {std::tuple(mesh.context, "context", "--context-parallel-size"),
          std::tuple(o.expert_model_parallel_size, "expert", "--expert-model-parallel-size"),
          std::tuple(o.expert_tensor_parallel_size, "expert", "--expert-tensor-parallel-size")}) {
        const std::string without = std::string(" ranks without ") + kind + " ranks";
        refuse(size, flag, !o.profile.empty(), "--profile describes" + without, "remove --profile");
        refuse(size, flag, !o.cost_file.empty(), "profiles describe" + without,
               "use --schedule-costs auto or F,B");
    }
}

/// Throws if the loss and what it reads do not belong together.
void check_loss(const TrainOptions& o) {
    const TrainingLoss& loss = o.loss;
    const std::string name = "--loss " + std::string(to_string(loss.name));
    const auto require = [&](LossName of, bool plain, const std::string& flags) {
        const bool one = flags.find(',') == std::string::npos;
        if (plain || loss.name == of) return;
        const std::string other = loss.name == LossName::cross_entropy
                                      ? "the cross-entropy"
                                      : std::string(to_string(loss.name));
        throw UsageError(flags + (one ? ": is a term" : ": are terms") + " of --loss " +
                         std::string(to_string(of)) + ", but the loss is " + other +
                         "; set it, or remove " + (one ? "the flag" : "them"));
    };
    require(LossName::grpo, loss.policy == PolicyLossOptions(),
            "--grpo-clamp-eps-lower, --grpo-clamp-eps-upper, --grpo-kl-beta, "
            "--grpo-kl-estimator, --grpo-entropy-term-weight");
    require(LossName::distillation, loss.distillation == DistillationOptions(),
            "--kd-top-k, --kd-ratio");
    require(LossName::dpo, loss.dpo_beta == TrainingLoss().dpo_beta, "--dpo-beta");
    if (loss.compares_pairs() && !o.evaluation.skip_train) {
        if (!o.data.subset.empty()) {
            throw UsageError("--data-subset: cannot be used with " + name +
                             ", whose samples are pairs; remove it");
        }
        const BatchSizeSchedule sizes(o.global_batch_size, o.ramp_up, /*unit=*/1);
        std::vector<int> all = sizes.smaller();
        all.push_back(sizes.full());
        const auto odd = std::ranges::find_if(all, [](int size) { return size % 2 != 0; });
        if (odd != all.end()) {
            throw UsageError(name + ": two samples are a pair, but a step has " + text(*odd) +
                             (sizes.full() % 2 != 0
                                  ? "; use an even --global-batch-size"
                                  : "; use an even START and INCREMENT of --rampup-batch-size"));
        }
    }
    if (loss.name == LossName::cross_entropy) {
        if (!o.data.columns.empty()) {
            throw UsageError(
                "--columns " + o.data.columns + ": " + name +
                " reads no columns; remove the flag, or set --loss grpo, distillation or dpo");
        }
        return;
    }
    if (!o.data.columns.empty() || o.evaluation.skip_train) return;
    throw UsageError(name + ": reads " + joined(loss.columns(), ", ", &NamedColumns::name) +
                     " of every token; set --columns FILE");
}

}  // namespace

bool validates(const TrainOptions& options) {
    const DataOptions& data = options.data;
    if (options.evaluation.iters == 0) return false;
    return !data.valid_path.empty() ||
           (!data.split.empty() && SplitProportions(data.split)[DataSplit::valid] > 0);
}

bool evaluates(const TrainOptions& options) {
    return validates(options) || !options.evaluation.multiple_choice_path.empty();
}

void check_options(const TrainOptions& options, int ranks) {
    TrainOptions o = options;  // the rows need a mutable object
    UnresolvedFlags unresolved;
    check_sizes(o.model);
    check_ranges(train_flags(o, unresolved));
    const ModelConfig& m = o.model;
    const Mesh mesh = mesh_of(o, ranks);
    m.check();
    if (o.global_batch_size % o.micro_batch_size != 0) {
        throw UsageError("--global-batch-size " + text(o.global_batch_size) +
                         ": must be a multiple of --micro-batch-size " + text(o.micro_batch_size));
    }
    if (o.global_batch_size / o.micro_batch_size % mesh.data != 0) {
        throw UsageError("--global-batch-size " + text(o.global_batch_size) + ": " +
                         text(o.global_batch_size / o.micro_batch_size) +
                         " microbatches cannot be divided evenly among " + text(mesh.data) +
                         " replicas of the pipeline; use a multiple of " +
                         text(o.micro_batch_size * mesh.data));
    }
    if (o.global_batch_size / o.micro_batch_size / mesh.data > kMostMicrobatches) {
        throw UsageError("--global-batch-size " + text(o.global_batch_size) + ": gives " +
                         text(o.global_batch_size / o.micro_batch_size / mesh.data) +
                         " microbatches per step; must be at most " + text(kMostMicrobatches) +
                         "; use a larger --micro-batch-size");
    }
    check_tensor_parallel(m, mesh.tensor, o.micro_batch_size * m.seq_length / mesh.context);
    check_context_parallel(m, mesh.context, o.context_form, mesh.tensor);
    check_expert_parallel(m, mesh.expert, o.expert_tensor_parallel_size);
    check_teams(o, mesh);
    check_loss(o);
    (void)learning_rate_schedule(o);
    check_adapters(m);
    const std::vector<LogicalParameter> tensors = logical_parameters(m);
    check_parameter_groups(o.optimizer.groups, tensors);
    check_frozen(tensors, frozen_parameters(o.optimizer.groups, tensors));
    if (o.reductions == Reductions::native && o.device != "host" && o.ranks_are_threads) {
        throw UsageError(
            "--reduction native: copies between the GPUs of one process cannot add; use "
            "--reduction ordered, or NCCL (mpirun with one GPU per rank)");
    }
    if (o.evaluation.skip_train && !evaluates(o)) {
        throw UsageError(
            "--skip-train: there is nothing to evaluate; set --valid-data-path, --split with a "
            "validation part, or --multiple-choice-path");
    }
    for (const auto& [flag, value] :
         {std::pair("--save", &o.save), std::pair("--report", &o.report),
          std::pair("--profile", &o.profile), std::pair("--trace-dir", &o.trace_dir),
          std::pair("--time-products", &o.time_products)}) {
        if (!o.evaluation.skip_train || value->empty()) continue;
        throw UsageError(std::string(flag) + " " + *value +
                         ": only training writes this; remove it or --skip-train");
    }
    if (o.evaluation.skip_train && o.verify_steps > 0) {
        throw UsageError("--verify-against-one-rank " + text(o.verify_steps) +
                         ": there is no training to verify; remove it or --skip-train");
    }
    if (o.evaluation.skip_train && o.replay_interval > 0) {
        throw UsageError("--replay-steps " + text(o.replay_interval) +
                         ": there are no steps to replay; remove it or --skip-train");
    }
    if (o.gpu.nondeterministic_attention && o.replay_interval > 0) {
        throw UsageError("--replay-steps " + text(o.replay_interval) +
                         ": compares bits, which --nondeterministic-attention changes each time; "
                         "remove one of them");
    }
    if (o.verify_steps > o.train_iters) {
        throw UsageError("--verify-against-one-rank " + text(o.verify_steps) +
                         ": must be at most the number of steps, " + text(o.train_iters));
    }
    if (o.verify_ranks > 0 && o.verify_steps == 0) {
        throw UsageError("--verify-ranks " + text(o.verify_ranks) +
                         ": requires --verify-against-one-rank STEPS");
    }
    if (o.save.empty() && o.save_interval > 0) {
        throw UsageError("--save-interval " + text(o.save_interval) + ": requires --save DIR");
    }
    if (o.save.empty() && o.save_total_limit > 0) {
        throw UsageError("--save-total-limit " + text(o.save_total_limit) +
                         ": requires --save DIR");
    }
    if (o.save.empty() && o.async_save) {
        throw UsageError("--async-save: requires --save DIR");
    }
    if (o.load.empty() && o.finetune) {
        throw UsageError("--finetune: requires --load DIR, which holds the initial weights");
    }
    at_most("--decoder-first-pipeline-num-layers", o.end_layers.first, m.num_layers);
    at_most("--decoder-last-pipeline-num-layers", o.end_layers.last, m.num_layers);
    if (o.end_layers.given() && (!o.layout.empty() || o.vocab_mode == VocabMode::redistributed)) {
        throw UsageError(
            "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers: " +
            (o.layout.empty() ? std::string("--vocab-mode redistributed")
                              : "--pipeline-model-parallel-layout " + o.layout) +
            " already assigns layers to stages; remove one of these flags");
    }
    const bool may_be_empty = o.end_layers.given() || !o.layout.empty();
    if (m.num_layers < mesh.pipeline && o.vocab_mode != VocabMode::redistributed && !may_be_empty) {
        throw UsageError("--num-layers " + text(m.num_layers) +
                         ": must be at least the number of ranks, " + text(mesh.pipeline) +
                         "; use more layers or fewer ranks");
    }
}

void check_same_options(Communicator& communicator, const TrainOptions& options) {
    check_same_on_every_rank(communicator, shared_flags(options), ExitCode::usage,
                             "start every rank with the same flags and the same program");
}

}  // namespace vocabpipe
