// SPDX-License-Identifier: Apache-2.0
// From flags to a step: makes or reads the schedule, takes costs from figures, a profile or pass
// times, then lowers and simulates it.
#include "src/tool/schedule/scheduled_step.hpp"

#include "src/plan/profiled_model.hpp"
#include "src/step/costs/length_sizes.hpp"
#include "src/step/costs/profile_costs.hpp"
#include "src/support/process_memory.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/schedule/figure_costs.hpp"
#include "src/tool/schedule/length_counts.hpp"
#include "src/tool/schedule/pass_times_file.hpp"
#include "src/tool/schedule/schedule_files.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/progress.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/options/rule_flags.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_order.hpp"
#include "vocabpipe/microbatch_order.hpp"
#include "vocabpipe/model_flops.hpp"
#include "vocabpipe/overlap_table.hpp"
#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/step_pieces.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

namespace vocabpipe::tool {

namespace {

/// The profile in a file; none for figures such as "12,24".
std::optional<Profile> profile_of(const std::string& costs) {
    std::error_code ignored;
    const bool figures = costs.find(',') != std::string::npos ||
                         costs.find_first_not_of("-0123456789") == std::string::npos;
    if (figures && !std::filesystem::exists(costs, ignored)) return std::nullopt;
    return read_profile(costs);
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

int needed(std::string_view flag, int value, int otherwise) {
    if (value == 0) value = otherwise;
    if (value >= 1) return value;
    throw UsageError(std::string(flag) + ": is required; use an integer of at least 1");
}

/// "hidden size 4096, 1 x 2048 tokens per microbatch, bf16, 4 layers, 128000 vocabulary rows".
std::string memory_of(const ScheduledStep& step, const ScheduleFlags& flags,
                      const std::vector<int>& layers, const std::optional<Profile>& profile) {
    const int64_t micro_batch_size =
        profile ? profile->model.micro_batch_size : flags.micro_batch_size;
    const int64_t seq_length = profile ? profile->model.seq_length : flags.seq_length;
    const int64_t count = layers.empty()
                              ? figured_model(flags, step.schedule.ranks).layers
                              : std::accumulate(layers.begin(), layers.end(), int64_t{0});
    std::string text = "hidden size " + std::to_string(step.sizes.hidden) + ", " +
                       (flags.lengths.empty() ? "" : "at most ") +
                       std::to_string(micro_batch_size) + " x " + std::to_string(seq_length) +
                       " tokens per microbatch, " +
                       (step.sizes.dtype == DType::bf16 ? "bf16" : "fp32") + ", ";
    // Some profiles do not record how many layers they measured.
    if (count > 0) text += counted(count, "layer") + ", ";
    text += counted(step.schedule.output.vocab_size(), "vocabulary row");
    return text + (step.persistent.empty() ? "; without weights and optimizer" : "");
}

/// Costs from a profile or from figures, and from a file of pass times where there is one. Flags
/// and profile must outlive them.
std::unique_ptr<CostSource> cost_source(const ScheduleFlags& flags, Recompute recompute,
                                        const std::optional<Profile>& profile) {
    std::unique_ptr<CostSource> costs;
    if (profile) {
        costs = std::make_unique<ProfileCosts>(*profile, recompute, selective_work(*profile),
                                               flags.num_layers);
    } else {
        costs = std::make_unique<FigureCosts>(flags, recompute);
    }
    if (flags.pass_times.empty()) return costs;
    return std::make_unique<PassTimesFile>(read_pass_times_text(flags.pass_times), std::move(costs),
                                           profile.has_value());
}

/// Takes what lowering and simulation need besides the schedule, and what people read about it; all
/// of the price but the costs for its order.
void take_price(ScheduledStep& step, StepPrice& price, const ScheduleFlags& flags,
                const std::optional<Profile>& profile) {
    step.sizes = std::move(price.sizes);
    step.costs = std::move(price.costs);
    step.persistent = std::move(price.persistent);
    if (!price.remark.empty()) step.title += ", " + price.remark;
    if (!profile) step.ticks_per_unit = ticks_per_unit(flags);
    if (!flags.overlap_table.empty()) {
        if (step.ticks_per_unit > 0) {
            throw UsageError("--overlap-table " + flags.overlap_table +
                             ": is in nanoseconds, but the costs are not; give --costs a profile, "
                             "or --pass-times");
        }
        step.costs.piece_ns = piece_price(read_overlap_table(flags.overlap_table));
    }
    if (flags.communication_order) step.costs.communication = *flags.communication_order;
    if (flags.free_vocabulary_collectives) {
        step.costs.free_vocabulary_collectives = true;
        step.title += ", vocabulary collectives free";
    }
    if (step.costs.communication != CommunicationOrder::lanes) {
        step.title += ", communication order " + std::string(to_string(step.costs.communication));
    }
    const std::string file = flags.pass_times.empty() ? "" : "pass times of " + flags.pass_times;
    if (profile) {
        step.costs_of = "of profile " + flags.costs + (file.empty() ? "" : ", " + file);
    } else {
        step.costs_of = file.empty() ? costs_text(flags, flags.pp) : file;
    }
    step.options = {.wait_for_reports = !flags.no_optimizer_barrier,
                    .persistent = step.persistent,
                    .cores = flags.cores > 0 ? flags.cores
                             : profile       ? profile->cores
                                             : 0};
}

/// Reads a schedule file, and refuses flags that do not apply to files.
Schedule read_checked(const std::string& path, const ScheduleFlags& flags) {
    RuleOptions rule = flags.rule;
    rule.search_moves = 0;  // a search takes any list
    for (const Flag& flag : rule_flags(rule)) {
        if (flag.text() == "0") continue;  // not given
        throw UsageError(flag.name() + ": applies only to named schedules; " + path + " is a file");
    }
    Schedule schedule = read_schedule_file(path, {.dialect = flags.dialect, .ranks = flags.pp});
    if (flags.microbatches != 0 && flags.microbatches != schedule.microbatches) {
        throw UsageError("--microbatches " + std::to_string(flags.microbatches) +
                         ": does not match " + path + ", which has " +
                         std::to_string(schedule.microbatches));
    }
    if (flags.vocab_mode && schedule.output.vocab_size() > 0) {
        throw UsageError("--vocab-mode " + std::string(to_string(*flags.vocab_mode)) + ": " + path +
                         " already has vocabulary passes; omit the flag");
    }
    return schedule;
}

/// The lengths of --lengths, behind the one that the costs are of, which may have no microbatch.
/// Empty: all microbatches have that one.
std::vector<LengthCount> lengths_of(const ScheduleFlags& flags,
                                    const std::optional<Profile>& profile) {
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

/// What the shorter of these lengths take.
std::vector<LengthShares> shares_of(const std::vector<LengthCount>& lengths,
                                    const ScheduleFlags& flags, Recompute recompute,
                                    const std::optional<Profile>& profile) {
    ModelConfig model = profile ? profiled_config(*profile) : figured_layer(flags, flags.pp);
    // Some profiles have neither, and only the shape of a layer matters.
    model.num_layers = 1;
    model.num_attention_heads = 1;
    std::vector<LengthShares> shares;
    for (size_t i = 1; i < lengths.size(); ++i) {
        shares.push_back(length_shares(model, recompute, lengths[i].length));
    }
    return shares;
}

/// Lengths of the microbatches of an ordered step, in an order that makes it short.
std::vector<int> ordered_lengths(const PricedStep& step, const std::vector<LengthCount>& lengths) {
    std::vector<int> of_microbatch;
    for (size_t i = 0; i < lengths.size(); ++i) {
        of_microbatch.insert(of_microbatch.end(), static_cast<size_t>(lengths[i].count),
                             static_cast<int>(i));
    }
    return order_microbatches(step.schedule, step.price.order, std::move(of_microbatch));
}

}  // namespace

ScheduledStep make_step(const std::string& name, const ScheduleFlags& asked, int64_t most_passes) {
    ScheduleFlags flags = asked;
    const std::optional<Profile> profile = profile_of(flags.costs);
    const std::vector<LengthCount> lengths = lengths_of(flags, profile);
    if (!lengths.empty()) {
        flags.seq_length = lengths.front().length;
        flags.microbatches = microbatches_of(lengths);
    }
    const bool is_file = names_schedule_file(name);
    const Schedule from_file = is_file ? read_checked(name, flags) : Schedule{};
    if (is_file) {
        flags.pp = from_file.ranks;
        flags.microbatches = from_file.microbatches;
    } else {
        check_schedule_name(name);  // an unknown name is reported first
    }
    flags.pp = needed("--pp", flags.pp, profile ? profile->ranks() : 0);
    if (profile && (flags.mtp_num_layers > 0 || !flags.layout.empty())) {
        throw UsageError((flags.mtp_num_layers > 0
                              ? "--mtp-num-layers " + std::to_string(flags.mtp_num_layers)
                              : "--pipeline-model-parallel-layout " + flags.layout) +
                         ": profile " + flags.costs +
                         " has the costs of its own model; use --costs F,B or none");
    }
    ScheduleOptions options;
    options.ranks = flags.pp;
    options.microbatches = needed("--microbatches", flags.microbatches, 0);
    options.vocab_mode = flags.vocab_mode.value_or(VocabMode::none);
    options.vocab_size = flags.vocab_size > 0 ? flags.vocab_size
                         : profile            ? profile->model.vocab
                                              : figured_model(flags, flags.pp).vocabulary_rows;
    options.rule = flags.rule;
    const bool complete_file = is_file && from_file.output.vocab_size() > 0;
    if (complete_file) flags.vocab_size = from_file.output.vocab_size();
    const bool own_recomputation = is_file && has_recomputation(from_file);
    const Recompute recompute = granularity(flags.recompute, own_recomputation, name);
    ScheduledStep step;
    step.default_mode = !flags.vocab_mode && !complete_file;
    step.title = name + (complete_file ? "" : " " + std::string(to_string(options.vocab_mode))) +
                 ", " + counted(options.ranks, "rank") + ", " +
                 counted(options.microbatches, "microbatch", "microbatches");
    if (recompute != Recompute::none) {
        step.title += ", " + std::string(to_string(recompute)) + " recomputation";
    }
    const OrderSource source{.name = name,
                             .passes = is_file ? &from_file : nullptr,
                             .recompute = recompute != Recompute::none && !own_recomputation};
    Schedule placed = placement_of(source, options);
    if (most_passes > 0) {
        check_size(placed, most_passes);
        check_program_memory(placed);
    }
    const std::unique_ptr<CostSource> costs = cost_source(flags, recompute, profile);
    PricedStep priced = price_step(*costs, std::move(placed), options.vocab_mode);
    take_price(step, priced.price, flags, profile);
    options.rule.broadcast_margin *= std::max(step.ticks_per_unit, 1);
    ProgressLine line(/*everywhere=*/true);
    options.search_progress = [&](int64_t done) {
        line.show("searched " + std::to_string(done) + " of " +
                  std::to_string(options.rule.search_moves) + " moves");
    };
    if (lengths.empty()) {
        order_step(priced, source, options);
    } else {
        const int64_t moves = std::exchange(options.rule.search_moves, 0);
        order_step(priced, source, options);
        MicrobatchLengths& of_step = priced.price.order.lengths;
        of_step.shorter = shares_of(lengths, flags, recompute, profile);
        of_step.of_microbatch = ordered_lengths(priced, lengths);
        step.lengths = length_order_text(lengths, of_step.of_microbatch);
        step.costs.lengths = of_step;
        step.sizes.length_of_microbatch = of_step.of_microbatch;
        for (size_t i = 1; i < lengths.size(); ++i) {
            step.sizes.shorter.push_back(
                length_sizes(step.sizes, lengths[i].length, lengths.front().length));
        }
        options.costs = priced.price.order;
        options.rule.search_moves = moves;  // only now that its costs are those of the lengths
        priced.schedule = finish_schedule(std::move(priced.schedule), options);
    }
    step.schedule = std::move(priced.schedule);
    step.memory_of = memory_of(step, flags, priced.layers, profile);
    return step;
}

std::string heading(const ScheduledStep& step) {
    std::string text = wrap_text(one_line(step.title)) + "\n";
    text += step.ticks_per_unit > 0
                ? wrap_text("times in the unit of the costs of a rank: " + one_line(step.costs_of) +
                                "; V: S, and T, of an even share of the rows; I, W: half of B; E, "
                                "G: a quarter of V",
                            2)
                : wrap_text("costs: " + one_line(step.costs_of), 2);
    text += "\n";
    if (!step.lengths.empty()) {
        text +=
            wrap_text("sequence lengths of the microbatches in order: " + step.lengths, 2) + "\n";
    }
    if (step.default_mode) {
        text += wrap_text(
                    "vocabulary mode none, the schedule as published, because no "
                    "--vocab-mode is given (train_gpt: one_barrier)",
                    2) +
                "\n";
    }
    return text;
}

SimulatedStep simulate_step(const std::string& schedule, const ScheduleFlags& flags) {
    SimulatedStep result;
    std::optional<LongWork> work;
    // A search shows its own progress.
    if (flags.rule.search_moves == 0) work.emplace("simulating " + schedule);
    result.step = make_step(schedule, flags, kMostPassesToLower);
    if (!work) work.emplace("simulating " + schedule);
    result.step.costs.slices = result.step.mesh().slices();
    const ScheduledStep& step = result.step;
    static_cast<SimulatedPrograms&>(result) =
        simulate_programs(step.schedule, step.sizes, step.costs, step.options, flags.receive_ahead,
                          flags.tile_pieces);
    result.step.title += result.remark();
    return result;
}

}  // namespace vocabpipe::tool
