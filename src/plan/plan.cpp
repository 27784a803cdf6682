// SPDX-License-Identifier: Apache-2.0
// make_plan() lists candidates, evaluates each on a few threads, and sorts the rows. Then it
// evaluates the best rows again with varied assumptions, in the same order of passes, to show how
// much the result depends on each.
#include "vocabpipe/plan.hpp"

#include "src/plan/candidates.hpp"
#include "src/plan/check_options.hpp"
#include "src/plan/device_links.hpp"
#include "src/plan/evaluate.hpp"
#include "src/plan/layer_products.hpp"
#include "src/support/control_groups.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>

namespace vocabpipe {

namespace {

/// Lowering and simulating takes about 5 us per pass (docs/planning.md), so this many are 20 s of
/// one core.
constexpr int64_t kPassesToSimulate = 4'000'000;

/// Runs work(i) for every i < count on a few threads; the first exception by index is thrown.
void for_all(size_t count, int threads, const std::function<void(size_t)>& work) {
    std::atomic<size_t> next{0};
    std::vector<std::exception_ptr> errors(count);
    const auto loop = [&] {
        for (size_t i = next++; i < count; i = next++) {
            try {
                work(i);
            } catch (...) {
                errors[i] = std::current_exception();
            }
        }
    };
    const double cores = std::max(1U, std::thread::hardware_concurrency());
    const auto hardware =
        static_cast<size_t>(std::max(1.0, std::min(cores, control_groups().cpus.value_or(cores))));
    const size_t wanted = threads > 0 ? static_cast<size_t>(threads) : hardware;
    {
        std::vector<std::jthread> pool;
        for (size_t t = 1; t < std::min(wanted, count); ++t) pool.emplace_back(loop);
        loop();
    }
    for (const std::exception_ptr& error : errors) {
        if (error) std::rethrow_exception(error);
    }
}

class Progress {
public:
    Progress(const PlanOptions& options, size_t all) : report_(options.progress), all_(all) {}
    void step() {
        const std::lock_guard lock(mutex_);
        ++done_;
        if (report_) report_(done_, all_);
    }
    /// So many steps are not needed after all.
    void leave_out(size_t steps) { all_ -= steps; }

private:
    std::mutex mutex_;
    const std::function<void(size_t, size_t)>& report_;
    size_t done_ = 0;
    size_t all_;
};

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
        worst_imbalance(plan.options.model.config.moe, plan.rows.front().candidate.mesh.expert);
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

void add_sensitivity(Plan& plan, Progress& progress) {
    const size_t rows =
        std::min(plan.rows.size(), static_cast<size_t>(plan.options.sensitivity_rows));
    if (rows == 0 || plan.options.profile) return;
    // If the first row fits, rows that do not fit are no alternative to it.
    const bool fits = plan.rows.front().fits();
    size_t rivals = 1;
    while (rivals < rows && plan.rows[rivals].fits() == fits) ++rivals;
    progress.leave_out(static_cast<size_t>(plan.options.sensitivity_rows) - rivals);

    Variations all = efficiencies(plan);
    const size_t count = all.settings.size();
    Variations uneven = imbalances(plan);
    std::move(uneven.settings.begin(), uneven.settings.end(), std::back_inserter(all.settings));
    std::move(uneven.results.begin(), uneven.results.end(), std::back_inserter(all.results));
    std::vector<int64_t> step_ns(all.settings.size() * rivals);
    for_all(rivals, plan.options.threads, [&](size_t rival) {
        const Candidate& candidate = plan.rows[rival].candidate;
        const Schedule order = order_passes(plan.options, candidate);
        for (size_t s = 0; s < all.settings.size(); ++s) {
            step_ns[s * rivals + rival] =
                evaluate(all.settings[s], candidate, order, plan.evaluation).step_ns;
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

}  // namespace

std::string_view to_string(Evaluation evaluation) {
    constexpr std::string_view kNames[] = {"auto", "simulation", "pass_times"};
    return kNames[static_cast<size_t>(evaluation)];
}

Evaluation evaluation_from(std::string_view name) {
    for (const Evaluation evaluation :
         {Evaluation::automatic, Evaluation::simulation, Evaluation::pass_times}) {
        if (to_string(evaluation) == name) return evaluation;
    }
    throw UsageError("--evaluation " + std::string(name) +
                     ": must be one of auto, simulation, pass_times");
}

std::string_view to_string(LayerSplit split) {
    constexpr std::string_view kNames[] = {"front", "back", "redistributed", "given"};
    return kNames[static_cast<size_t>(split)];
}

std::string schedule_text(const Candidate& candidate) {
    if (candidate.memory_limit == 0) return candidate.schedule;
    return candidate.schedule + " k=" + std::to_string(candidate.memory_limit);
}

std::string mesh_text(const Mesh& mesh) {
    std::string text = "p=" + std::to_string(mesh.pipeline);
    for (const auto& [name, ranks] :
         {std::pair{" t=", mesh.tensor}, {" d=", mesh.data}, {" e=", mesh.expert}}) {
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
    if (candidate.schedule.empty() || candidate.mesh.slices() > 1) add(mesh_text(candidate.mesh));
    if (candidate.micro_batch_size > 1) add("b=" + std::to_string(candidate.micro_batch_size));
    if (candidate.recompute != Recompute::none) add(std::string(to_string(candidate.recompute)));
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
        plan.evaluation =
            passes <= kPassesToSimulate ? Evaluation::simulation : Evaluation::pass_times;
    }

    std::vector<std::optional<PlanRow>> rows(possible.size());
    std::vector<std::string> reasons(possible.size());
    const size_t varied = options.profile ? 0 : static_cast<size_t>(options.sensitivity_rows);
    Progress progress(options, possible.size() + varied);
    for_all(possible.size(), options.threads, [&](size_t i) {
        try {
            rows[i] = evaluate(options, possible[i], plan.evaluation);
        } catch (const UsageError& error) {
            reasons[i] = error.what();
        }
        progress.step();
    });
    for (size_t i = 0; i < possible.size(); ++i) {
        if (rows[i]) {
            plan.rows.push_back(std::move(*rows[i]));
        } else {
            plan.skipped.emplace_back(possible[i], reasons[i]);
        }
    }
    if (plan.rows.empty()) {
        throw UsageError(plan.skipped.empty() ? "nothing to plan: no schedule is selected"
                                              : "no candidate is possible: " +
                                                    to_string(plan.skipped.front().first) + ": " +
                                                    plan.skipped.front().second);
    }
    // Candidates that do not fit are sorted by the memory they lack. At equal time the one with
    // less memory comes first; then the order in which they were listed.
    std::stable_sort(plan.rows.begin(), plan.rows.end(), [](const PlanRow& a, const PlanRow& b) {
        if (a.fits() != b.fits()) return a.fits();
        if (!a.fits() || a.step_ns == b.step_ns) return a.spare_bytes > b.spare_bytes;
        return a.step_ns < b.step_ns;
    });
    add_sensitivity(plan, progress);
    return plan;
}

}  // namespace vocabpipe
