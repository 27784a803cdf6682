// SPDX-License-Identifier: Apache-2.0
#include "src/plan/candidates.hpp"

#include "schedules/placement.hpp"
#include "src/plan/list_steps.hpp"
#include "src/plan/model_on_device.hpp"
#include "src/plan/profiled_model.hpp"
#include "src/plan/unit_costs.hpp"
#include "src/support/joined.hpp"
#include "src/support/nearest_name.hpp"
#include "src/support/text_layout.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/model_flops.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <span>
#include <tuple>

namespace vocabpipe {

namespace {

std::vector<const Generator*> families(const std::vector<std::string>& asked) {
    std::vector<const Generator*> result;
    std::vector<std::string_view> known;
    for (const Generator& family : generators()) {
        known.push_back(family.name);
        if (asked.empty()) result.push_back(&family);
    }
    for (const std::string& name : asked) {
        if (std::find(known.begin(), known.end(), name) == known.end()) {
            throw UsageError("--schedules " + name + ": " + must_be_one_of(known, name));
        }
        result.push_back(&generator(name));
    }
    return result;
}

/// Those of the numbers asked for that a family can have. A family with one chunk stays with it:
/// the numbers are for families that have several. Where none is possible the first one is refused.
/// `layers`: of a rank, where ZeRO stages 2 and 3 share them stage by stage; else 0.
std::vector<int> chunks_of(const Generator& family, const std::vector<int>& asked, int layers) {
    if (!asked.empty()) {
        if (family.any_chunks) return asked;
        const bool possible = family.chunks == 1 ||
                              std::find(asked.begin(), asked.end(), family.chunks) != asked.end();
        return {possible ? family.chunks : asked.front()};
    }
    std::vector<int> chunks{family.chunks};
    if (family.any_chunks) chunks.insert(chunks.end(), {2, 4});
    if (family.any_chunks && layers > 1) chunks.push_back(layers);
    std::sort(chunks.begin(), chunks.end());
    chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
    return chunks;
}

/// Memory limits worth a row, in chunks: one between ZB-H1 and ZB-H2, which have their own rows;
/// for a V pattern all that it can use (its own limit), and the limit of V-Half.
std::vector<int> memory_limits_of(const Generator& family, int ranks) {
    if (!family.memory_limit || ranks < 3) return {0};
    if (family.placement == Placement::straight) return {ranks + ranks / 2};
    return {0, ranks + 2};
}

std::vector<LayerSplit> splits_of(const PlanOptions& options, VocabMode mode, int ranks,
                                  int stages) {
    if (!options.layers_per_stage.empty()) return {LayerSplit::given};
    const int layers = options.model.config.num_layers;
    if (mode == VocabMode::redistributed) return {LayerSplit::redistributed};
    const bool predicts = options.model.config.mtp_num_layers > 0;
    if (predicts ? stages > ranks : layers % stages == 0) return {LayerSplit::front};
    return {LayerSplit::front, LayerSplit::back};
}

/// What the last stage does besides its layers, in units of a mean layer: the output layer by
/// FLOPs, where an R makes the layers longer; depths of multi-token prediction by their passes.
/// `output_layer`: without R.
LastStageWork last_stage_work(const UnitCosts& units, double output_layer) {
    LayerTimes all;
    for (const LayerTimes& layer : units.layers) all.add(layer);
    const auto whole = [](const LayerTimes& of) { return of.forward + of.backward + of.recompute; };
    const double longer = 1 + all.recompute / std::max(all.forward + all.backward, 1.0);
    return {.output_layer = output_layer / longer,
            .mtp_layers = whole(units.mtp_layers) * static_cast<double>(units.layers.size()) /
                          std::max(whole(all), 1.0)};
}

std::vector<int> split_layers(const PlanOptions& options, Recompute recompute, LayerSplit split,
                              const std::vector<int>& rank_of_stage, const LastStageWork& last) {
    if (split == LayerSplit::given) return options.layers_per_stage;
    const VocabMode mode =
        split == LayerSplit::redistributed ? VocabMode::redistributed : VocabMode::none;
    const int count = options.model.config.num_layers;
    std::vector<int> layers;
    if (options.profile) {
        const bool as_profiled = count == options.profile->model.layers;
        layers = costs_of(*options.profile, recompute, as_profiled ? 0 : count)
                     .layers_per_stage(rank_of_stage, mode);
    } else {
        layers = layers_per_stage(count, rank_of_stage, mode, last);
    }
    // Depths stay in the last stage, with the fewer layers of theirs.
    const auto end = last.mtp_layers > 0 ? layers.end() - 1 : layers.end();
    if (split == LayerSplit::back) std::reverse(layers.begin(), end);
    return layers;
}

std::string refusal(const PlanOptions& options, const Generator& family, int ranks, int chunks) {
    if (chunks != family.chunks && !family.any_chunks) {
        return "has " + std::to_string(family.chunks) + " chunk" + (family.chunks == 1 ? "" : "s") +
               " per rank";
    }
    const int64_t stages = int64_t{ranks} * chunks;
    if (stages > std::numeric_limits<uint16_t>::max()) return "more than 65535 stages";
    if (!options.layers_per_stage.empty() && std::ssize(options.layers_per_stage) != stages) {
        return "has " + counted(stages, "stage") + ", but --layers-per-stage has " +
               counted(std::ssize(options.layers_per_stage), "number");
    }
    // With one stage per rank, stages may be empty: else the GPUs could not be used.
    if (chunks > 1 && stages > options.model.config.num_layers) {
        return "more stages than the model's " + std::to_string(options.model.config.num_layers) +
               " layers";
    }
    return {};
}

/// The reason why measured times do not apply to a candidate's passes; empty: they apply.
std::string other_passes(const PlannedPassTimes& times, const std::vector<int>& ranks,
                         VocabMode mode) {
    const std::string those = "the passes of " + times.name + " ";
    const int pipeline = ranks.empty() ? 0 : 1 + *std::max_element(ranks.begin(), ranks.end());
    if (times.rank_ns.size() != static_cast<size_t>(pipeline)) {
        return those + "are of " + counted(std::ssize(times.rank_ns), "rank");
    }
    if (times.rank_of_stage.size() != ranks.size()) {
        return those + "are of " + counted(std::ssize(times.rank_of_stage), "stage");
    }
    if (times.rank_of_stage != ranks) return those + "have stages on other ranks";
    Schedule placement;
    placement.ranks = static_cast<int>(times.rank_ns.size());
    placement.rank_of_stage = ranks;
    place_vocabulary(placement, mode, placement.ranks);
    for (const auto& [layer, shards, ops] :
         {std::tuple{"input", &placement.input, std::array{Op::E, Op::G}},
          std::tuple{"output", &placement.output, std::array{Op::S, Op::T}}}) {
        bool measured = false, missing = false, beyond = false;
        for (int rank = 0; rank < placement.ranks; ++rank) {
            const bool holds = shards->rows(rank) > 0;
            for (const Op op : ops) {
                const int64_t ns = cost_in(times.rank_ns[static_cast<size_t>(rank)], op);
                measured = measured || ns > 0;
                missing = missing || (holds && ns < 0);
                beyond = beyond || (!holds && ns > 0);
            }
        }
        if (measured && (missing || beyond)) {
            return those + "have the " + layer + " layer on other ranks";
        }
    }
    return {};
}

/// Gradients and weights of stages stay whole for each use, or from the first to the last of a
/// step; one stage per rank has one use.
void add_ways_to_share(int zero_stage, Candidate candidate, std::vector<Candidate>& to) {
    if (zero_stage < 2) {
        to.push_back(std::move(candidate));
        return;
    }
    candidate.zero.stage = zero_stage;
    for (const ReshardAfter after : {ReshardAfter::use, ReshardAfter::step}) {
        candidate.zero.reshard_after = after;
        if (after == ReshardAfter::use || candidate.chunks > 1) to.push_back(candidate);
    }
}

/// Whether orders of the family can have pairs: between the forwards and backwards of ranks with
/// several stages come the passes of a sharded vocabulary.
bool can_have_pairs(const Generator& family, VocabMode mode) {
    return family.overlap_pairs && (family.placement == Placement::straight || !sharded(mode));
}

/// All candidates of a mesh, microbatch size and recomputation, of the selected families.
void add_candidates(const PlanOptions& options, std::vector<const Generator*> selected,
                    const Candidate& step, const LastStageWork& last, Candidates& result) {
    constexpr VocabMode kModes[] = {VocabMode::none, VocabMode::redistributed,
                                    VocabMode::interlaced, VocabMode::one_barrier,
                                    VocabMode::two_barriers};
    std::span<const VocabMode> modes =
        options.vocab_modes.empty() ? std::span(kModes) : std::span(options.vocab_modes);
    const int ranks = step.mesh.pipeline;
    // Tensor ranks hold different parts of most weights.
    const int zero = step.mesh.size_of(Axis::data) > 1 ? options.trainer.zero : 1;
    if (ranks == 1 && step.mesh.slices() > 1) {
        modes = modes.first(1);
        // Nothing to choose in a pipeline of one rank but stages to share.
        if (zero > 1 && options.schedules.empty()) {
            std::erase_if(selected, [](const Generator* family) { return !family->any_chunks; });
        } else {
            selected.resize(1);
        }
    }
    const int layers_of_rank = zero > 1 ? options.model.config.num_layers / ranks : 0;
    const bool whole = std::find(modes.begin(), modes.end(), VocabMode::none) != modes.end();
    for (const Generator* family : selected) {
        for (const VocabMode mode : modes) {
            for (const int chunks : chunks_of(*family, options.chunks, layers_of_rank)) {
                Candidate candidate = step;
                candidate.schedule = std::string(family->name);
                candidate.vocab_mode = mode;
                candidate.chunks = chunks;
                candidate.overlap_pairs = options.overlap_pairs && can_have_pairs(*family, mode);
                if (std::string why = refusal(options, *family, ranks, chunks); !why.empty()) {
                    result.skipped.emplace_back(candidate, std::move(why));
                    continue;
                }
                const std::vector<int> of_stage = rank_of_stage(family->placement, ranks, chunks);
                if (options.pass_times) {
                    if (std::string why = other_passes(*options.pass_times, of_stage, mode);
                        !why.empty()) {
                        result.skipped.emplace_back(candidate, std::move(why));
                        continue;
                    }
                }
                const int stages = ranks * chunks;
                for (const LayerSplit split : splits_of(options, mode, ranks, stages)) {
                    const auto split_as = [&](LayerSplit as) {
                        return split_layers(options, step.recompute, as, of_stage, last);
                    };
                    candidate.split = split;
                    candidate.layers_per_stage = split_as(split);
                    // Layers that the user gives are those of none, too.
                    if (mode == VocabMode::redistributed && whole &&
                        (split == LayerSplit::given ||
                         candidate.layers_per_stage == split_as(LayerSplit::front) ||
                         candidate.layers_per_stage == split_as(LayerSplit::back))) {
                        result.skipped.emplace_back(candidate, "has the layers of none");
                        continue;
                    }
                    for (const int limit : memory_limits_of(*family, ranks)) {
                        candidate.memory_limit = limit;
                        add_ways_to_share(zero, candidate, result.possible);
                    }
                }
            }
        }
    }
}

/// Refuses what no candidate would use.
void check_pairs(const PlanOptions& options, const std::vector<Candidate>& possible) {
    if (possible.empty()) return;
    const auto any = [&](const auto& is) { return std::ranges::any_of(possible, is); };
    std::vector<std::string_view> names;
    for (const Generator& family : generators()) {
        if (family.overlap_pairs) names.push_back(family.name);
    }
    if (options.overlap_pairs && !any([](const Candidate& c) { return c.overlap_pairs; })) {
        throw UsageError("--overlap-pairs: no candidate can have pairs; only " + joined(names) +
                         " can, those with several stages per rank with vocabulary modes none and "
                         "redistributed: change --schedules or --vocab-modes");
    }
    const int percent = options.trainer.exchange_percent;
    if (percent == 0 || any(hides_exchanges)) return;
    throw UsageError("--exchange-percent " + std::to_string(percent) +
                     ": no candidate has pairs and ranks that share a stage: set --overlap-pairs, "
                     "and --tensor-model-parallel-size, --context-parallel-size or "
                     "--expert-model-parallel-size above 1");
}

}  // namespace

bool hides_exchanges(const Candidate& candidate) {
    const Mesh& mesh = candidate.mesh;
    const bool team = mesh.tensor > 1 || mesh.context > 1 || mesh.expert > 1;
    const Generator& family = generator(candidate.schedule);
    // A V with pairs always has them.
    const bool pairs = candidate.overlap_pairs || family.placement == Placement::v_shape;
    return team && pairs && can_have_pairs(family, candidate.vocab_mode);
}

Candidates list_candidates(const PlanOptions& options) {
    const std::vector<const Generator*> selected = families(options.schedules);
    const ModelOnDevice model(options);
    Candidates steps = list_steps(options, model);
    Candidates result{.possible = {}, .skipped = std::move(steps.skipped)};
    const double output_layer = options.profile ? 0 : output_layer_in_layers(model.config);
    for (const Candidate& step : steps.possible) {
        const LastStageWork last = options.profile
                                       ? LastStageWork()
                                       : last_stage_work(unit_costs(model, step), output_layer);
        add_candidates(options, selected, step, last, result);
    }
    check_pairs(options, result.possible);
    return result;
}

}  // namespace vocabpipe
