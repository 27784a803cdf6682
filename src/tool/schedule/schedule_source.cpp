// SPDX-License-Identifier: Apache-2.0
// From flags to a step: makes or reads the schedule, takes costs from figures, a profile or pass
// times, then lowers and simulates it.
#include "src/tool/schedule/schedule_source.hpp"

#include "src/support/names_of.hpp"
#include "src/support/process_memory.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/schedule/pass_times_file.hpp"
#include "src/tool/schedule/schedule_files.hpp"
#include "src/tool/schedule/step_costs.hpp"
#include "src/tool/support/flag_parser.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/progress.hpp"
#include "src/train/options/rule_flags.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_order.hpp"
#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/step_pieces.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <optional>

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

/// Layers of every stage; empty if all stages are alike.
std::vector<int> layers_of(const std::vector<int>& rank_of_stage, const ScheduleFlags& flags,
                           VocabMode mode, Recompute recompute,
                           const std::optional<Profile>& profile) {
    const auto stages = static_cast<int>(rank_of_stage.size());
    const int layers = flags.num_layers > 0 ? flags.num_layers
                       : profile            ? profile->model.layers
                                            : 0;
    if (layers == 0) {
        if (profile) return std::vector<int>(static_cast<size_t>(stages), 0);
        if (mode != VocabMode::redistributed) return {};
        throw UsageError(
            "--vocab-mode redistributed: requires --num-layers, because the layers that move "
            "depend on it");
    }
    if (flags.num_layers == 0 && mode != VocabMode::redistributed &&
        static_cast<int>(profile->model.layers_per_stage.size()) == stages) {
        return profile->model.layers_per_stage;
    }
    double output = 0;  // output layer, in transformer layers
    const auto sum = [](const std::vector<TableCosts::OpCosts>& table, Op a, Op b) {
        double total = 0;
        for (const auto& costs : table) {
            total +=
                static_cast<double>(costs[static_cast<size_t>(a)] + costs[static_cast<size_t>(b)]);
        }
        return total;
    };
    if (profile) {
        const double trained = sum(profile->costs.stage_ns, Op::F, Op::B) +
                               recompute_ns_per_layer(*profile, recompute) * profile->model.layers;
        output = sum(profile->costs.rank_ns, Op::S, Op::T) * profile->model.layers /
                 std::max(1.0, trained);
    } else {
        const StageCosts costs = parse_stage_costs(flags.costs, kTicksPerUnit);
        const int64_t again = recompute_cost(costs.forward, recompute, flags.hidden_size);
        output = 2.0 * static_cast<double>(costs.vocabulary) * layers /
                 static_cast<double>(costs.forward + costs.backward + again);
    }
    return layers_per_stage(layers, rank_of_stage, mode, output);
}

/// "hidden size 4096, 1 x 2048 tokens per microbatch, bf16, 4 layers, 128000 vocabulary rows".
std::string memory_of(const ScheduledStep& step, const ScheduleFlags& flags,
                      const std::vector<int>& layers, const std::optional<Profile>& profile) {
    const int64_t micro_batch_size =
        profile ? profile->model.micro_batch_size : flags.micro_batch_size;
    const int64_t seq_length = profile ? profile->model.seq_length : flags.seq_length;
    const int64_t count = layers.empty()
                              ? step.schedule.ranks
                              : std::accumulate(layers.begin(), layers.end(), int64_t{0});
    std::string text = "hidden size " + std::to_string(step.sizes.hidden) + ", " +
                       std::to_string(micro_batch_size) + " x " + std::to_string(seq_length) +
                       " tokens per microbatch, " +
                       (step.sizes.dtype == DType::bf16 ? "bf16" : "fp32") + ", ";
    // Some profiles do not record how many layers they measured.
    if (count > 0) text += counted(count, "layer") + ", ";
    text += counted(step.schedule.output.vocab_size(), "vocabulary row");
    return text + (step.persistent.empty() ? "; without weights and optimizer" : "");
}

/// Completes a profile with tensor ranks. Summing the gradients of replicated parameters (norms,
/// biases) is not simulated: they are a few rows.
void set_tensor_ranks(ScheduledStep& step) {
    const Mesh mesh = step.mesh();
    step.title += ", " + std::to_string(mesh.tensor) + " tensor ranks each";
    step.sizes.buckets.assign(static_cast<size_t>(mesh.pipeline), {});
    std::vector<PersistentBytes> of_world;
    for (const PersistentBytes& of_rank : step.persistent) {
        of_world.insert(of_world.end(), static_cast<size_t>(mesh.tensor), of_rank);
    }
    step.persistent = std::move(of_world);
}

/// Sets costs and sizes of `step`, whose stages and shards are set.
void set_costs(ScheduledStep& step, const ScheduleFlags& flags, VocabMode mode, Recompute recompute,
               const std::optional<Profile>& profile) {
    const std::vector<int> layers =
        layers_of(step.schedule.rank_of_stage, flags, mode, recompute, profile);
    if (profile) {
        set_costs(step, *profile, layers);
        if (step.sizes.tensor > 1) set_tensor_ranks(step);
        if (recompute != Recompute::none) set_recomputation(step, *profile, layers, recompute);
    } else {
        const bool ns = flags.figures_are_ns || !flags.pass_times.empty();
        step.ticks_per_unit = ns ? 0 : kTicksPerUnit;
        set_costs(step, parse_stage_costs(flags.costs, std::max(step.ticks_per_unit, 1)), layers,
                  flags, recompute);
    }
    if (!flags.pass_times.empty()) {
        set_pass_times(step, flags.pass_times, profile.has_value());
    }
    // Without a model or a number of layers, assumes four layers per stage.
    const int all_layers = std::accumulate(layers.begin(), layers.end(), 0);
    step.costs.layers_per_stage =
        all_layers == 0 ? 4 : static_cast<double>(all_layers) / step.schedule.stages;
    if (!flags.overlap_table.empty()) {
        if (step.ticks_per_unit > 0) {
            throw UsageError("--overlap-table " + flags.overlap_table +
                             ": is in nanoseconds, but --costs " + flags.costs +
                             " is not; give a profile or --pass-times");
        }
        step.costs.piece_ns = piece_price(read_overlap_table(flags.overlap_table));
    }
    if (flags.communication_order) step.costs.communication = *flags.communication_order;
    step.memory_of = memory_of(step, flags, layers, profile);
    step.costs_of = profile ? "of profile " + flags.costs : costs_text(flags);
    if (!flags.pass_times.empty()) step.costs_of += ", pass times of " + flags.pass_times;
    step.options = {.wait_for_reports = !flags.no_optimizer_barrier,
                    .persistent = step.persistent,
                    .cores = flags.cores > 0 ? flags.cores
                             : profile       ? profile->cores
                                             : 0};
}

/// Reads a schedule file, and refuses flags that do not apply to files.
Schedule read_checked(const std::string& path, const ScheduleFlags& flags) {
    const RuleOptions& rule = flags.rule;
    for (const auto& [flag, given] :
         {std::pair{"--chunks", rule.chunks != 0},
          std::pair{"--memory-limit", rule.memory_limit != 0},
          std::pair{"--group-size", rule.group_size != 0},
          std::pair{"--warm-up-depth", rule.warm_up_depth != 0},
          std::pair{"--broadcast-margin", rule.broadcast_margin != 0}}) {
        if (!given) continue;
        throw UsageError(std::string(flag) + ": applies only to named schedules; " + path +
                         " is a file");
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

}  // namespace

Flag schedule_argument(std::string& name, const std::string& help) {
    return {.names = "SCHEDULE",
            .value = &name,
            .help = help,
            .choices = schedule_names(),
            .free = true};
}

FlagGroup schedule_source_flags(ScheduleFlags& flags) {
    const FlagRange count = between(1, 0x1p30);
    FlagGroup group{
        .flags = {
            {.names = "--pp",
             .value = &flags.pp,
             .help = "Number of pipeline ranks",
             .range = between(1, 65535),  // stage numbers have 16 bits
             .absent = 0},
            {.names = "--microbatches",
             .value = &flags.microbatches,
             .help = "Microbatches per step",
             .range = count,
             .absent = 0},
            {.names = "--vocab-mode",
             .value = named(&flags.vocab_mode, vocab_mode_from),
             .help =
                 "Vocabulary mode: none, redistributed, interlaced, one_barrier or two_barriers",
             .choices = vocab_mode_names(),
             .unset = "none, or the passes of the file"},
            {.names = "--vocab-size",
             .value = &flags.vocab_size,
             .help = "Vocabulary size in rows",
             .range = count,
             .unset = "from the profile, else 32000 per rank"},
            {.names = "--recompute-granularity",
             .value = named(&flags.recompute, recompute_from),
             .help = "Activations that R recomputes before each backward: none, selective or full",
             .choices = recompute_names(),
             .unset = "none; full for a file that contains R"},
            {.names = "--costs",
             .value = &flags.costs,
             .help = "Cost F,B or F,B,V in any unit (of a rank's layers; V: S and T of an even "
                     "share of the vocabulary), or a profile file"},
            {.names = "--pass-times",
             .value = &flags.pass_times,
             .help = "CSV file (rank,op,stage,ns) of pass times that replace the figures of "
                     "--costs, or some passes of a profile"},
            {.names = "--latency",
             .value = &flags.latency,
             .help = "Cost of a message, in the unit of --costs F,B (ns with --pass-times)",
             .range = between(0, 0x1p40)},
            {.names = "--hop",
             .value = &flags.hop,
             .help = "Time that a boundary takes on a link beside the latency, in the same unit",
             .range = between(0, 0x1p40)},
            dialect_flag(flags.dialect, "Pass letters of a PyTorch CSV"),
            {.names = "--num-layers",
             .value = &flags.num_layers,
             .help = "Number of transformer layers",
             .range = count,
             .unset = "from the profile, else one per rank"},
            {.names = "--hidden-size",
             .value = &flags.hidden_size,
             .help = "Hidden size of a bf16 transformer, for memory with --costs F,B",
             .range = count},
            {.names = "--seq-length",
             .value = &flags.seq_length,
             .help = "Tokens per sequence, for memory with --costs F,B",
             .range = count},
            {.names = "--micro-batch-size",
             .value = &flags.micro_batch_size,
             .help = "Sequences per microbatch, for memory with --costs F,B",
             .range = count},
            {.names = "--cores",
             .value = &flags.cores,
             .help = "Number of cores that all ranks share",
             .range = between(1, 65535),
             .unset = "from the profile, else at least one per rank"},
            {.names = "--no-optimizer-barrier",
             .value = &flags.no_optimizer_barrier,
             .help = "Do not let the optimizer step wait for other ranks (post-validation)"},
            {.names = "--communication-order",
             .value = named(&flags.communication_order, communication_order_from),
             .help = "What a communication waits for: the start of the previous one in its lane "
                     "(lanes: hosts), its end (streams: GPU copies), also the start of the "
                     "previous one in any lane (launches: NCCL), or the end of that one (serial)",
             .choices = names_of({CommunicationOrder::lanes, CommunicationOrder::streams,
                                  CommunicationOrder::launches, CommunicationOrder::serial}),
             .unset = "from the profile, else lanes"},
        }};
    std::ranges::move(rule_flags(flags.rule), std::back_inserter(group.flags));
    return group;
}

FlagGroup lowering_flags(ScheduleFlags& flags) {
    return {.flags = {{.names = "--receive-ahead",
                       .value = &flags.receive_ahead,
                       .help = "How many passes before its use to post a receive, or auto: as "
                               "early as useful within the memory limit"},
                      {.names = "--tile-pieces",
                       .value = &flags.tile_pieces,
                       .help = "By how many pieces boundaries between stages travel while they "
                               "are made and used, or auto: by as many as make the step shortest",
                       .unit = "PIECES"},
                      {.names = "--overlap-table",
                       .value = &flags.overlap_table,
                       .help = "What vocabpipe profile --overlap measured: the price of a piece, "
                               "for costs in nanoseconds",
                       .unit = "FILE"}}};
}

std::string take_own_flags(const std::string& text, ScheduleFlags& flags) {
    if (std::error_code ignored; std::filesystem::exists(text, ignored)) return text;
    const size_t end = std::min(text.find(','), text.size());
    std::vector<std::string> arguments;
    for (size_t at = end; at < text.size();) {
        const size_t next = std::min(text.find(',', at + 1), text.size());
        const std::string part = text.substr(at + 1, next - at - 1);
        // --costs contains commas itself.
        if (!arguments.empty() && part.find('=') == std::string::npos) {
            arguments.back() += "," + part;
        } else {
            arguments.push_back("--" + part);
        }
        at = next;
    }
    try {
        read_flags({schedule_source_flags(flags), lowering_flags(flags)}, arguments);
    } catch (const UsageError& error) {
        throw UsageError(text + ": " + error.what() +
                         "; use NAME,flag=value,... such as 1f1b,vocab-mode=one_barrier");
    }
    return text.substr(0, end);
}

ScheduledStep make_step(const std::string& name, const ScheduleFlags& asked, int64_t most_passes) {
    ScheduleFlags flags = asked;
    const std::optional<Profile> profile = profile_of(flags.costs);
    const bool is_file = names_schedule_file(name);
    const Schedule from_file = is_file ? read_checked(name, flags) : Schedule{};
    if (is_file) {
        flags.pp = from_file.ranks;
        flags.microbatches = from_file.microbatches;
    } else {
        check_schedule_name(name);  // an unknown name is reported first
    }
    flags.pp = needed("--pp", flags.pp, profile ? profile->ranks() : 0);
    ScheduleOptions options;
    options.ranks = flags.pp;
    options.microbatches = needed("--microbatches", flags.microbatches, 0);
    options.vocab_mode = flags.vocab_mode.value_or(VocabMode::none);
    options.vocab_size = flags.vocab_size > 0 ? flags.vocab_size
                         : profile            ? profile->model.vocab
                                              : int64_t{32000} * flags.pp;
    options.rule = flags.rule;
    const bool complete_file = is_file && from_file.output.vocab_size() > 0;
    const bool own_recomputation = is_file && has_recomputation(from_file);
    const Recompute recompute = granularity(flags.recompute, own_recomputation, name);
    ScheduledStep step;
    step.title = name + (complete_file ? "" : " " + std::string(to_string(options.vocab_mode))) +
                 ", " + counted(options.ranks, "rank") + ", " +
                 counted(options.microbatches, "microbatch", "microbatches");
    if (recompute != Recompute::none) {
        step.title += ", " + std::string(to_string(recompute)) + " recomputation";
    }
    // Costs depend only on stages and shards, and the order of the passes on the costs.
    const OrderSource source{.name = name,
                             .passes = is_file ? &from_file : nullptr,
                             .recompute = recompute != Recompute::none && !own_recomputation};
    step.schedule = placement_of(source, options);
    if (most_passes > 0) {
        check_size(step.schedule, most_passes);
        check_program_memory(step.schedule);
    }
    set_costs(step, flags, options.vocab_mode, recompute, profile);
    if (step.costs.communication != CommunicationOrder::lanes) {
        step.title += ", communication order " + std::string(to_string(step.costs.communication));
    }
    options.costs = PassCosts::of(step.costs, step.sizes, step.schedule);
    options.rule.broadcast_margin *= std::max(step.ticks_per_unit, 1);
    ProgressLine line(/*everywhere=*/true);
    options.search_progress = [&](int64_t done) {
        line.show("searched " + std::to_string(done) + " of " +
                  std::to_string(options.rule.search_moves) + " moves");
    };
    step.schedule = make_order(source, options);
    return step;
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
    LowerOptions lowering{.receive_ahead = receive_ahead_from(flags.receive_ahead),
                          .pieces = tile_pieces_from(flags.tile_pieces)};
    // If messages take no time, pieces gain nothing.
    if (lowering.pieces == 0 && step.costs.bytes_per_ns == 0) lowering.pieces = 1;
    EarlyReceives made = lower_step(step.schedule, step.sizes, step.costs, lowering, step.options);
    result.programs = std::move(made.lowered).all();
    result.receive_ahead = made.receive_ahead;
    result.pieces = made.pieces;
    if (made.pieces > 1) {
        result.step.title += ", boundaries by " + std::to_string(made.pieces) + " pieces";
    }
    result.simulation = simulate(result.programs, step.costs, step.options);
    return result;
}

}  // namespace vocabpipe::tool
