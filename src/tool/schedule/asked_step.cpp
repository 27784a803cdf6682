// SPDX-License-Identifier: Apache-2.0
// Reads and decides what a step is made of, in the order in which errors are reported: profile,
// lengths, schedule file; size and placement; costs.
#include "src/tool/schedule/asked_step.hpp"

#include "src/plan/profiled_model.hpp"
#include "src/step/costs/profile_costs.hpp"
#include "src/support/process_memory.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/schedule/figure_costs.hpp"
#include "src/tool/schedule/length_counts.hpp"
#include "src/tool/schedule/pass_times_file.hpp"
#include "src/tool/schedule/schedule_files.hpp"
#include "src/train/options/rule_flags.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/model_flops.hpp"
#include "vocabpipe/overlap_table.hpp"
#include "vocabpipe/step_pieces.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace vocabpipe::tool {

namespace {

/// The profile in a file; none for figures such as "12,24".
std::unique_ptr<const Profile> profile_of(const std::string& costs) {
    std::error_code ignored;
    const bool figures = costs.find(',') != std::string::npos ||
                         costs.find_first_not_of("-0123456789") == std::string::npos;
    if (figures && !std::filesystem::exists(costs, ignored)) return nullptr;
    return std::make_unique<const Profile>(read_profile(costs));
}

/// AskedStep::lengths.
std::vector<LengthCount> lengths_of(const ScheduleFlags& flags, const Profile* profile) {
    std::vector<LengthCount> lengths = parse_length_counts(flags.lengths);
    if (lengths.empty() || !profile) return lengths;
    const int64_t longest = profile->model.seq_length;
    if (lengths.front().length > longest) {
        throw UsageError("--lengths " + flags.lengths + ": profile " + flags.costs +
                         " has sequences of " + std::to_string(longest) +
                         " tokens, and longer ones were not measured; use at most that");
    }
    if (lengths.front().length < longest) lengths.insert(lengths.begin(), {.length = longest});
    return lengths;
}

/// Reads a schedule file, and refuses flags that do not apply to files. `microbatches`: 0: not
/// given.
Schedule read_checked(const std::string& path, int microbatches, const ScheduleFlags& flags) {
    RuleOptions rule = flags.rule;
    rule.search_moves = 0;  // a search takes any list
    for (const Flag& flag : rule_flags(rule)) {
        if (flag.text().empty() || flag.text() == "0") continue;  // not given
        throw UsageError(flag.name() + ": applies only to named schedules; " + path + " is a file");
    }
    Schedule schedule = read_schedule_file(path, {.dialect = flags.dialect, .ranks = flags.pp});
    if (microbatches != 0 && microbatches != schedule.microbatches) {
        throw UsageError("--microbatches " + std::to_string(microbatches) + ": does not match " +
                         path + ", which has " + std::to_string(schedule.microbatches));
    }
    if (flags.vocab_mode && schedule.output.vocab_size() > 0) {
        throw UsageError("--vocab-mode " + std::string(to_string(*flags.vocab_mode)) + ": " + path +
                         " already has vocabulary passes; omit the flag");
    }
    return schedule;
}

int needed(std::string_view flag, int value, int otherwise) {
    if (value == 0) value = otherwise;
    if (value >= 1) return value;
    throw UsageError(std::string(flag) + ": is required; use an integer of at least 1");
}

/// Refuses flags that describe another model than the profiled one.
void check_profiled_model(const ScheduleFlags& flags) {
    const FigureOptions& figures = flags.figures;
    if (figures.mtp_num_layers == 0 && figures.layout.empty()) return;
    throw UsageError(
        (figures.mtp_num_layers > 0 ? "--mtp-num-layers " + std::to_string(figures.mtp_num_layers)
                                    : "--pipeline-model-parallel-layout " + figures.layout) +
        ": profile " + flags.costs + " has the costs of its own model; use --costs F,B or none");
}

/// UsageError if the step would have more than `most` passes; assumes at most three passes per
/// stage and four per rank for each microbatch.
void check_size(const Schedule& schedule, int64_t most) {
    const int64_t per_microbatch = int64_t{3} * schedule.stages + int64_t{4} * schedule.ranks;
    if (schedule.microbatches <= most / per_microbatch) return;
    throw UsageError("--microbatches " + std::to_string(schedule.microbatches) + ": with " +
                     counted(schedule.stages, "stage") + ", a step has up to " +
                     std::to_string(per_microbatch * schedule.microbatches) +
                     " passes, but at most " + std::to_string(most) +
                     " are supported; use at most " + std::to_string(most / per_microbatch) +
                     " (the middle of a step only repeats)");
}

/// OutOfMemoryError if programs would not fit in memory. Two sets of them exist, as two ways to
/// receive are compared; each rank's program lists all ranks that it meets, with a part for each if
/// the vocabulary is sharded.
void check_program_memory(const Schedule& schedule) {
    constexpr double kBytesPerPass = 800;
    const double ranks = schedule.ranks;
    const bool sharded = schedule.output.owners().size() > 1;
    const double lists = ranks * ranks * (sizeof(int) + (sharded ? 3 * sizeof(int64_t) : 0));
    const double passes = kBytesPerPass * 2 * schedule.stages * schedule.microbatches;
    const double bytes = 2 * (lists + passes);
    const auto available = static_cast<double>(available_memory());
    if (bytes <= available) return;
    constexpr double kGib = 1 << 30;
    throw OutOfMemoryError("--pp " + std::to_string(schedule.ranks) + ": programs of " +
                           counted(schedule.ranks, "rank") + " and " +
                           counted(schedule.microbatches, "microbatch", "microbatches") +
                           format(" need at least %.1f GiB, but only %.1f GiB are available; use "
                                  "fewer of them",
                                  bytes / kGib, available / kGib));
}

/// The price of a piece in a file of overlap, which is in nanoseconds as the costs must be.
int64_t read_piece_price(const std::string& path, int ticks_per_unit) {
    if (ticks_per_unit > 0) {
        throw UsageError("--overlap-table " + path +
                         ": is in nanoseconds, but the costs are not; give --costs a profile, "
                         "or --pass-times");
    }
    return piece_price(read_overlap_table(path));
}

/// Costs and sizes that were measured.
void take_profile(AskedStep& step, Recompute recompute, const ScheduleFlags& flags) {
    const Profile& profile = *step.profile;
    step.costs = std::make_unique<ProfileCosts>(profile, recompute, selective_work(profile),
                                                flags.figures.num_layers);
    step.costs_of = "of profile " + flags.costs;
    step.cores = profile.cores;
    step.model = {.layers = profile.model.layers,
                  .seq_length = profile.model.seq_length,
                  .micro_batch_size = profile.model.micro_batch_size};
}

/// Costs that are figures, and the sizes of the model that they are of.
void take_figures(AskedStep& step, Recompute recompute, const FigureOptions& figures) {
    const int ranks = step.options.ranks;
    step.costs = std::make_unique<FigureCosts>(figures, recompute);
    if (!figures.replaced) step.costs_of = costs_text(figures, ranks);
    step.ticks_per_unit = ticks_per_unit(figures);
    step.model = {.layers = figured_model(figures, ranks).layers,
                  .seq_length = figures.seq_length,
                  .micro_batch_size = figures.micro_batch_size};
}

/// What the lengths but the first take of a model's passes.
std::vector<LengthShares> shares_of(const std::vector<LengthCount>& lengths, ModelConfig model,
                                    Recompute recompute) {
    // Some profiles have neither, and only the shape of a layer matters.
    model.num_layers = 1;
    model.num_attention_heads = 1;
    std::vector<LengthShares> shares;
    for (size_t i = 1; i < lengths.size(); ++i) {
        shares.push_back(length_shares(model, recompute, lengths[i].length));
    }
    return shares;
}

/// Pass times of a file in place of those costs.
void take_pass_times(AskedStep& step, const std::string& path) {
    step.costs = std::make_unique<PassTimesFile>(read_pass_times_text(path), std::move(step.costs),
                                                 /*keep=*/step.profile != nullptr);
    step.costs_of += (step.costs_of.empty() ? "" : ", ") + ("pass times of " + path);
}

}  // namespace

AskedStep asked_step(const std::string& name, const ScheduleFlags& flags, int64_t most_passes) {
    AskedStep step;
    step.name = name;
    step.profile = profile_of(flags.costs);
    const Profile* const profile = step.profile.get();
    step.lengths = lengths_of(flags, profile);
    int ranks = flags.pp;
    int microbatches = step.lengths.empty() ? flags.microbatches : microbatches_of(step.lengths);
    if (names_schedule_file(name)) {
        step.passes = read_checked(name, microbatches, flags);
        ranks = step.passes->ranks;
        microbatches = step.passes->microbatches;
    } else {
        check_schedule_name(name);  // an unknown name is reported first
    }
    ranks = needed("--pp", ranks, profile ? profile->ranks() : 0);
    if (profile) check_profiled_model(flags);
    microbatches = needed("--microbatches", microbatches, 0);

    FigureOptions figures = flags.figures;
    if (!profile) figures.costs = flags.costs;
    figures.replaced = !flags.pass_times.empty();
    if (!step.lengths.empty()) figures.seq_length = step.lengths.front().length;
    step.options = {.ranks = ranks,
                    .microbatches = microbatches,
                    .vocab_mode = flags.vocab_mode.value_or(VocabMode::none),
                    .vocab_size = figures.vocab_size > 0 ? figures.vocab_size
                                  : profile              ? profile->model.vocab
                                            : figured_model(figures, ranks).vocabulary_rows,
                    .rule = flags.rule};
    const bool complete_file = step.passes && step.passes->output.vocab_size() > 0;
    if (complete_file) figures.vocab_size = step.passes->output.vocab_size();
    const bool own_recomputation = step.passes && has_recomputation(*step.passes);
    const Recompute recompute = granularity(flags.recompute, own_recomputation, name);
    step.adds_recomputation = recompute != Recompute::none && !own_recomputation;
    step.placed = placement_of(step.source(), step.options);
    if (most_passes > 0) {
        check_size(step.placed, most_passes);
        check_program_memory(step.placed);
    }

    if (profile) {
        take_profile(step, recompute, flags);
    } else {
        take_figures(step, recompute, figures);
    }
    if (!flags.pass_times.empty()) take_pass_times(step, flags.pass_times);
    step.shorter =
        shares_of(step.lengths, profile ? profiled_config(*profile) : figured_layer(figures, ranks),
                  recompute);
    if (flags.cores > 0) step.cores = flags.cores;
    if (!flags.overlap_table.empty()) {
        step.piece_ns = read_piece_price(flags.overlap_table, step.ticks_per_unit);
    }
    step.communication = flags.communication_order;
    step.free_vocabulary_collectives = flags.free_vocabulary_collectives;
    step.wait_for_reports = !flags.no_optimizer_barrier;
    step.options.rule.broadcast_margin *= std::max(step.ticks_per_unit, 1);
    step.default_mode = !flags.vocab_mode && !complete_file;
    step.title = name;
    if (!complete_file) step.title += " " + std::string(to_string(step.options.vocab_mode));
    step.title +=
        ", " + counted(ranks, "rank") + ", " + counted(microbatches, "microbatch", "microbatches");
    if (recompute != Recompute::none) {
        step.title += ", " + std::string(to_string(recompute)) + " recomputation";
    }
    return step;
}

}  // namespace vocabpipe::tool
