// SPDX-License-Identifier: Apache-2.0
// make_plan() lists candidates and evaluates them, or searches for the best. Then it evaluates the
// best rows again with varied assumptions, in the same order of passes, to show how much the result
// depends on each.
#include "vocabpipe/plan.hpp"

#include "src/plan/candidates.hpp"
#include "src/plan/check_options.hpp"
#include "src/plan/device_links.hpp"
#include "src/plan/evaluate.hpp"
#include "src/plan/layer_products.hpp"
#include "src/plan/parallel.hpp"
#include "src/plan/plan_lengths.hpp"
#include "src/plan/plan_progress.hpp"
#include "src/plan/search.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace vocabpipe {

namespace {

/// Lowering and simulating takes about 5 us per pass, several times where receives are tried early
/// (docs/planning.md), so this many are some 15 s of one core.
constexpr int64_t kPassesToSimulate = 1'000'000;

/// Each class of operation has one efficiency; its time is proportional to 1 / efficiency.
constexpr std::string_view kVaried[] = {"dense_efficiency",       "attention_efficiency",
                                        "elementwise_efficiency", "link_efficiency",
                                        "network_efficiency",     "overlap_efficiency"};

/// Varied assumptions: the options of each, and its entry in the results.
struct Variations {
    std::vector<PlanOptions> settings;
    std::vector<Sensitivity> results;
};

Variations efficiencies(const Plan& plan) {
    Variations all;
    for (const std::string_view key : kVaried) {
        for (const double factor : {0.9, 1.1}) {
            PlanOptions options = plan.options;
            for (const DeviceFigure& figure : device_figures()) {
                if (figure.key != key) continue;
                Figure& varied = options.device.*figure.figure;
                varied.value = std::min(varied.value * factor, 1.0);
                all.results.push_back({.figure = key, .basis = varied.basis, .factor = factor});
            }
            all.settings.push_back(std::move(options));
        }
    }
    return all;
}

/// Imbalances to try if the best row shares experts.
Variations imbalances(const Plan& plan) {
    constexpr double kUneven = 1.5;
    const double worst =
        worst_imbalance(plan.options.model.config.moe, plan.rows.front().candidate.expert_groups());
    Variations all;
    if (worst <= 1) return all;
    for (const double imbalance : {std::min(kUneven, worst), worst}) {
        all.settings.push_back(plan.options);
        all.settings.back().moe_imbalance = imbalance;
        all.results.push_back(
            {.figure = "moe_imbalance", .basis = Basis::assumed, .factor = imbalance});
    }
    return all;
}

void add_sensitivity(Plan& plan) {
    const size_t rows =
        std::min(plan.rows.size(), static_cast<size_t>(plan.options.sensitivity_rows));
    if (rows == 0 || plan.options.profile) return;
    // If the first row fits, rows that do not fit are no alternative to it; nor do times of two
    // kinds compare.
    const bool fits = plan.rows.front().fits();
    const Evaluation how = plan.rows.front().evaluation;
    size_t rivals = 1;
    while (rivals < rows && plan.rows[rivals].fits() == fits &&
           plan.rows[rivals].evaluation == how) {
        ++rivals;
    }
    PlanProgress progress(plan.options, "varying efficiencies", rivals);

    Variations all = efficiencies(plan);
    const size_t count = all.settings.size();
    Variations uneven = imbalances(plan);
    std::move(uneven.settings.begin(), uneven.settings.end(), std::back_inserter(all.settings));
    std::move(uneven.results.begin(), uneven.results.end(), std::back_inserter(all.results));
    const Evaluator unchanged(plan.options);
    const std::vector<Evaluator> changed(all.settings.begin(), all.settings.end());
    std::vector<int64_t> step_ns(changed.size() * rivals);
    for_all(rivals, plan.options.threads, {}, [&](size_t rival) {
        const PlanRow& row = plan.rows[rival];
        const Schedule order = unchanged.order(row.candidate);
        const auto ns = [&](const Evaluator& evaluator, Evaluation by) {
            return evaluator.row(row.candidate, order, by).step_ns;
        };
        // Large steps take long to simulate: what a search found varies as its pass times do.
        const bool searched = plan.evaluation == Evaluation::search;
        const auto timed =
            static_cast<double>(searched ? ns(unchanged, Evaluation::pass_times) : row.step_ns);
        for (size_t s = 0; s < changed.size(); ++s) {
            const int64_t varied = ns(changed[s], searched ? Evaluation::pass_times : how);
            step_ns[s * rivals + rival] = searched
                                              ? std::llround(static_cast<double>(row.step_ns) /
                                                             timed * static_cast<double>(varied))
                                              : varied;
        }
        progress.step();
    });
    for (size_t s = 0; s < all.settings.size(); ++s) {
        const auto first = step_ns.begin() + static_cast<std::ptrdiff_t>(s * rivals);
        const auto best = std::min_element(first, first + static_cast<std::ptrdiff_t>(rivals));
        Sensitivity& result = all.results[s];
        result.step_ns = *first;
        result.best_row = static_cast<size_t>(best - first);
        result.best_step_ns = *best;
        (s < count ? plan.sensitivity : plan.imbalance).push_back(result);
    }
}

void add_lengths(Plan& plan) {
    if (plan.options.documents.empty()) return;
    plan.lengths.resize(std::min(plan.rows.size(), kLengthRows));
    PlanProgress progress(plan.options, "planning lengths", plan.lengths.size());
    for_all(plan.lengths.size(), plan.options.threads, {}, [&](size_t row) {
        plan.lengths[row] = plan_lengths(plan.options, plan.rows[row]);
        progress.step();
    });
}

}  // namespace

std::string_view to_string(Evaluation evaluation) {
    constexpr std::string_view kNames[] = {"auto", "search", "simulation", "pass_times"};
    return kNames[static_cast<size_t>(evaluation)];
}

Evaluation evaluation_from(std::string_view name) {
    for (const Evaluation evaluation : {Evaluation::automatic, Evaluation::search,
                                        Evaluation::simulation, Evaluation::pass_times}) {
        if (to_string(evaluation) == name) return evaluation;
    }
    throw UsageError("--evaluation " + std::string(name) +
                     ": must be one of auto, search, simulation, pass_times");
}

std::string_view to_string(LayerSplit split) {
    constexpr std::string_view kNames[] = {"front", "back", "redistributed", "given"};
    return kNames[static_cast<size_t>(split)];
}

std::string schedule_text(const Candidate& candidate) {
    if (candidate.memory_limit == 0) return candidate.schedule;
    return candidate.schedule + " k=" + std::to_string(candidate.memory_limit);
}

std::string mesh_text(const Candidate& candidate) {
    const Mesh& mesh = candidate.mesh;
    std::string text = "p=" + std::to_string(mesh.pipeline);
    for (const auto& [name, ranks] : {std::pair{" t=", mesh.tensor},
                                      {" C=", mesh.context},
                                      {" d=", mesh.data},
                                      {" e=", candidate.expert_groups()},
                                      {" x=", candidate.expert_tensor}}) {
        if (ranks > 1) text += name + std::to_string(ranks);
    }
    return text;
}

std::string to_string(const Candidate& candidate) {
    std::string text;
    if (!candidate.schedule.empty()) {
        text = schedule_text(candidate) + " " + std::string(to_string(candidate.vocab_mode));
        // The redistributed split has the same name as its vocabulary mode.
        if (candidate.split != LayerSplit::redistributed) {
            text += " " + std::string(to_string(candidate.split));
        }
        text += " v=" + std::to_string(candidate.chunks);
    }
    const auto add = [&](const std::string& more) { text += (text.empty() ? "" : " ") + more; };
    if (candidate.schedule.empty() || candidate.mesh.slices() > 1) add(mesh_text(candidate));
    if (candidate.micro_batch_size > 1) add("b=" + std::to_string(candidate.micro_batch_size));
    if (candidate.recompute != Recompute::none) add(std::string(to_string(candidate.recompute)));
    if (candidate.zero.stage > 1) {
        add("reshard=" + std::string(to_string(candidate.zero.reshard_after)));
    }
    return text;
}

bool spans_nodes(const DeviceSpec& device, const Mesh& mesh, Axis axis) {
    return DeviceLinks(device).spans_nodes(mesh, axis);
}

const std::array<MemoryPurpose, 7>& memory_purposes() {
    using M = PlannedMemory;
    static constexpr std::array<MemoryPurpose, 7> kPurposes{{
        {"weights", &M::weights},
        {"gradients", &M::gradients},
        {"optimizer", &M::optimizer},
        {"activations", &M::activations},
        {"vocabulary", &M::vocabulary},
        {"communication", &M::communication},
        {"reserve", &M::reserve},
    }};
    return kPurposes;
}

Plan make_plan(const PlanOptions& options) {
    check_options(options);
    Plan plan{.options = options};
    Candidates candidates = list_candidates(options);
    plan.skipped = std::move(candidates.skipped);
    const std::vector<Candidate>& possible = candidates.possible;

    plan.evaluation = options.evaluation;
    if (plan.evaluation == Evaluation::automatic) {
        int64_t passes = 0;
        for (const Candidate& candidate : possible) passes += count_passes(candidate);
        plan.evaluation = passes <= kPassesToSimulate ? Evaluation::simulation : Evaluation::search;
    }

    Evaluated evaluated = plan.evaluation == Evaluation::search
                              ? search_best(options, possible)
                              : evaluate_all(options, possible, plan.evaluation);
    plan.rows = std::move(evaluated.rows);
    plan.search = evaluated.counts;
    std::move(evaluated.skipped.begin(), evaluated.skipped.end(), std::back_inserter(plan.skipped));
    if (!plan.search.complete) return plan;
    if (plan.rows.empty()) {
        throw UsageError(plan.skipped.empty() ? "nothing to plan: no schedule is selected"
                                              : "no candidate is possible: " +
                                                    to_string(plan.skipped.front().first) + ": " +
                                                    plan.skipped.front().second);
    }
    add_sensitivity(plan);
    add_lengths(plan);
    return plan;
}

}  // namespace vocabpipe
