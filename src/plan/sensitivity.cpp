// SPDX-License-Identifier: Apache-2.0
#include "src/plan/sensitivity.hpp"

#include "src/plan/evaluate.hpp"
#include "src/plan/layer_products.hpp"
#include "src/plan/parallel.hpp"
#include "src/plan/plan_progress.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

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

}  // namespace

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

}  // namespace vocabpipe
