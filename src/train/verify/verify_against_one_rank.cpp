// SPDX-License-Identifier: Apache-2.0
#include "src/train/verify/verify_against_one_rank.hpp"

#include "src/model/parameter_groups.hpp"
#include "src/model/parameters.hpp"
#include "src/runtime/gathered.hpp"
#include "src/support/text_layout.hpp"
#include "src/train/plan/planned_memory.hpp"
#include "src/train/plan/planned_step.hpp"
#include "src/train/plan/run_rank.hpp"
#include "src/train/verify/compare_values.hpp"
#include "src/train/verify/parameter_values.hpp"
#include "src/train/verify/rounding_bounds.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr const char* kFlag = "--verify-against-one-rank";

/// Sets the deadline of a communicator for as long as it lives.
class LongerTimeout {
public:
    LongerTimeout(Communicator& communicator, double factor)
        : communicator_(communicator), before_(communicator.wait_options().timeout_seconds) {
        communicator_.set_timeout(before_ * factor);
    }
    ~LongerTimeout() { communicator_.set_timeout(before_); }
    LongerTimeout(const LongerTimeout&) = delete;
    LongerTimeout& operator=(const LongerTimeout&) = delete;

private:
    Communicator& communicator_;
    double before_;
};

/// "transformer.h.1.mlp.c_fc.weight (layer 1)"
std::string with_layer(const std::string& name, size_t id, const ModelParameters& model) {
    for (size_t layer = 0; layer < model.layers.size(); ++layer) {
        if (std::cmp_greater_equal(id, model.layers[layer].first) &&
            std::cmp_less(id, model.layers[layer].end)) {
            return name + " (layer " + std::to_string(layer) + ")";
        }
    }
    return name;
}

/// What rank 0 knows of the run on one rank, and what it has found.
class Comparison {
public:
    Comparison(const TrainingPlan& plan, const ModelParameters& model, int reference_ranks)
        : plan_(plan),
          model_(model),
          reference_(reference_ranks == 1 ? "one rank"
                                          : std::to_string(reference_ranks) + " ranks"),
          bounds_(rounding_bounds(plan)) {}

    /// Losses and gradient norms of the n-th step, from 1.
    void begin_step(int64_t n, double learning_rate, const StepResult& mesh,
                    const StepResult& expected) {
        n_ = n;
        moved_ += learning_rate;
        norm_ = expected.grad_norm;
        compare("loss", mesh.loss, expected.loss);
        compare("gradient norm", mesh.grad_norm, expected.grad_norm);
    }

    /// The values of one parameter, as gather_values() returns them, of the mesh and of the
    /// reference.
    void add(const std::vector<std::optional<ParameterValues>>& by_rank,
             const std::vector<std::optional<ParameterValues>>& reference) {
        // A tied weight is held by two ranks, and one of them has its gradient.
        expected_ = nullptr;
        for (const std::optional<ParameterValues>& values : reference) {
            if (!values) continue;
            if (expected_ == nullptr || expected_->gradient.empty()) expected_ = &*values;
        }
        for (size_t rank = 0; rank < by_rank.size(); ++rank) {
            if (by_rank[rank]) compare(*by_rank[rank], rank);
        }
        for (size_t rank = 1; rank < by_rank.size(); ++rank) {
            if (by_rank[rank]) compare_copies(by_rank, rank);
        }
    }

    /// Throws what was found in the step.
    void end_step(int64_t step) const {
        if (scalars_.empty() && tensors_.empty()) return;
        std::string text = std::string(kFlag) + ": step " + std::to_string(step) +
                           " is not that of " + reference_ + ": " + scalars_;
        if (!tensors_.empty()) {
            const auto first = std::ranges::min_element(tensors_, {}, [](const Found& found) {
                return std::tuple(found.id, found.rank, found.of_weight);
            });
            if (!scalars_.empty()) text += "; ";
            text += first->text;
            if (tensors_.size() > 1) {
                text += "; " + std::to_string(tensors_.size() - 1) +
                        " more gradients or weights differ";
            }
        }
        throw Error(ExitCode::wrong_values,
                    text + "; do not train with these ranks and flags before you know why");
    }

    [[nodiscard]] std::string summary(int64_t steps) const {
        const std::string begin = "verified against " + reference_ + ": " + std::to_string(steps) +
                                  (steps == 1 ? " step" : " steps") +
                                  ", losses, gradient norms, gradients and weights ";
        if (bounds_.to_the_bit) return begin + "equal to the bit";
        std::array<char, 64> text;
        std::snprintf(text.data(), text.size(), "%.2g of its bound: ", nearest_);
        return begin + "within rounding; nearest to a bound, " + text.data() + nearest_what_;
    }

private:
    struct Found {
        size_t id = 0;
        size_t rank = 0;
        bool of_weight = false;
        std::string text;
    };

    void compare(const char* what, double found, double expected) {
        if (std::isnan(found) && std::isnan(expected)) return;
        const double bound = bounds_.of_scalar(expected, n_);
        const bool same = std::bit_cast<uint64_t>(found) == std::bit_cast<uint64_t>(expected);
        if (same) return;
        if (!bounds_.to_the_bit && std::abs(found - expected) <= bound) {
            note(std::abs(found - expected) / bound, what);
            return;
        }
        std::array<char, 160> text;
        int end = std::snprintf(text.data(), text.size(), "%s %.17g instead of %.17g", what, found,
                                expected);
        if (!scalars_.empty()) scalars_ += ", ";
        scalars_ += std::string(text.data(), static_cast<size_t>(end));
        if (bounds_.to_the_bit) return;
        end = std::snprintf(text.data(), text.size(), " (bound %.2g)", bound);
        scalars_ += std::string(text.data(), static_cast<size_t>(end));
    }

    void compare(const ParameterValues& mine, size_t rank) {
        const ParameterValues& whole = *expected_;
        const double norm = euclidean_norm(whole.gradient);
        const auto tensors = std::ssize(model_.all);
        const double bound = bounds_.of_gradient(norm, norm_, tensors, n_);
        Distance distance = distance_between(mine.gradient, mine.first, mine.runs, whole.gradient);
        if (!bounds_.to_the_bit) distance.bound = bound;
        judge("gradient of ", mine, rank, false, distance);

        distance = distance_between(mine.weight, mine.first_weight, mine.runs, whole.weight);
        if (!bounds_.to_the_bit) {
            const double turned = norm > 0 ? bound / norm : std::numeric_limits<double>::infinity();
            distance.bound =
                bounds_.of_weights(std::ssize(mine.weight), turned, moved_ * multiplier(mine.name),
                                   euclidean_norm(mine.weight));
        }
        judge("weight ", mine, rank, true, distance);
    }

    /// Ranks that hold the same elements got them from the same sum.
    void compare_copies(const std::vector<std::optional<ParameterValues>>& by_rank, size_t rank) {
        const ParameterValues& mine = *by_rank[rank];
        int64_t held = 0;
        for (const ElementRun& run : mine.runs) held += run.count;
        // Ranks that keep a part of it each have their own.
        if (std::ssize(mine.weight) < held) return;
        const auto same_run = [](const ElementRun& a, const ElementRun& b) {
            return a.held == b.held && a.logical == b.logical && a.count == b.count;
        };
        const auto found = std::ranges::find_if(by_rank, [&](const auto& other) {
            return other && other->name == mine.name && std::ssize(other->weight) == held &&
                   std::ranges::equal(other->runs, mine.runs, same_run);
        });
        const auto other = static_cast<size_t>(found - by_rank.begin());
        if (other == rank) return;
        std::vector<float> whole(expected_->weight.size());
        for (const ElementRun& run : mine.runs) {
            std::copy_n((*found)->weight.begin() + run.held, run.count,
                        whole.begin() + run.logical);
        }
        const Distance distance = distance_between(mine.weight, 0, mine.runs, whole);
        if (distance.within()) return;
        tensors_.push_back({id_of(mine.name), rank, true,
                            "weight " + described(mine.name) + " on rank " + std::to_string(rank) +
                                " is not the copy that rank " + std::to_string(other) +
                                " has: " + distance.text(columns(mine.name))});
    }

    void judge(const char* what, const ParameterValues& mine, size_t rank, bool of_weight,
               const Distance& distance) {
        const std::string where = what + described(mine.name) + " on rank " + std::to_string(rank);
        if (distance.within()) {
            if (distance.bound && *distance.bound > 0) {
                note(distance.value / *distance.bound, where);
            }
            return;
        }
        tensors_.push_back(
            {id_of(mine.name), rank, of_weight, where + ": " + distance.text(columns(mine.name))});
    }

    void note(double share, const std::string& what) {
        if (share <= nearest_) return;
        nearest_ = share;
        nearest_what_ = what + " in step " + std::to_string(n_);
    }

    [[nodiscard]] size_t id_of(const std::string& name) const {
        const auto found = std::ranges::find(model_.all, name, &LogicalParameter::name);
        return static_cast<size_t>(found - model_.all.begin());
    }
    [[nodiscard]] std::string described(const std::string& name) const {
        return with_layer(name, id_of(name), model_);
    }
    [[nodiscard]] int64_t columns(const std::string& name) const {
        return model_.all[id_of(name)].cols;
    }
    [[nodiscard]] double multiplier(const std::string& name) const {
        const OptimizerOptions& optimizer = plan_.options().optimizer;
        return double{
            parameter_settings(optimizer.groups, name, /*decays=*/false, optimizer.weight_decay)
                .lr_multiplier};
    }

    const TrainingPlan& plan_;
    const ModelParameters& model_;
    std::string reference_;
    RoundingBounds bounds_;
    int64_t n_ = 0;
    double moved_ = 0;                           ///< sum of the learning rates of all steps so far
    double norm_ = 0;                            ///< of the gradient of all tensors in this step
    const ParameterValues* expected_ = nullptr;  ///< of the parameter that is compared
    std::string scalars_;
    std::vector<Found> tensors_;
    double nearest_ = 0;
    std::string nearest_what_ = "no value differs";
};

/// Whether a reference can run.
enum class Fit : uint8_t { fits, no_room, impossible };

/// The reference on the fewest ranks that have room for it beside the mesh, on all ranks.
/// AgreedError if there is none.
std::unique_ptr<ReferenceRun> make_reference(Communicator& communicator, const Device& device,
                                             const TrainingPlan& plan) {
    const int asked = plan.options().verify_ranks;
    // A transport between GPUs has no communicators of the first ranks alone.
    const bool on_hosts = device.communication_order() == CommunicationOrder::lanes;
    const int most = on_hosts ? communicator.size() : 1;
    if (asked > most) {
        communicator.agree([&] {
            throw UsageError("--verify-ranks " + std::to_string(asked) + ": must be at most " +
                             std::to_string(most) +
                             (on_hosts ? ", the number of ranks" : " on GPUs"));
        });
    }
    std::exception_ptr refused;  // by the first number of ranks that was tried
    for (int ranks = std::max(asked, 1); ranks <= most; ranks *= 2) {
        Fit fit = Fit::fits;
        std::unique_ptr<ReferenceRun> reference;
        try {
            reference = std::make_unique<ReferenceRun>(plan, device, ranks);
            if (communicator.rank() < ranks) {
                check_memory(reference->plan(), communicator.rank(),
                             planned_beside(plan, communicator.rank()));
            }
        } catch (const OutOfMemoryError& error) {
            fit = Fit::no_room;
            if (!refused) {
                refused = std::make_exception_ptr(OutOfMemoryError(
                    std::string(kFlag) + ": the reference on " + counted(ranks, "rank") +
                    " beside those of the mesh: " + error.what() +
                    "; or verify a model of fewer layers and the same mesh"));
            }
        } catch (const UsageError&) {
            fit = Fit::impossible;
            if (!refused) refused = std::current_exception();
        }
        const std::vector<Fit> all = gathered_values(communicator, fit);
        if (std::ranges::all_of(all, [](Fit one) { return one == Fit::fits; })) return reference;
        if (asked > 0 || fit == Fit::impossible) break;
    }
    communicator.agree([&] {
        if (refused) std::rethrow_exception(refused);
    });
    throw std::logic_error("no rank says why there is no reference");
}

/// Null: there is none such.
const Parameter* find_parameter(std::span<const Parameter> parameters, const std::string& name) {
    const auto found = std::ranges::find(parameters, name, &Parameter::name);
    return found == parameters.end() ? nullptr : &*found;
}

}  // namespace

std::string verify_against_one_rank(Communicator& communicator, Device& device,
                                    const TrainingPlan& plan, const RunInputs& inputs,
                                    BatchLoader& batches,
                                    const LearningRateSchedule& learning_rate) {
    // The others wait while rank 0 does the work of all.
    const LongerTimeout longer(communicator, communicator.size() + 1);
    const int64_t steps = plan.options().verify_steps;
    const std::unique_ptr<ReferenceRun> reference = make_reference(communicator, device, plan);
    const int reference_ranks = reference->plan().ranks();
    const bool refers = communicator.rank() < reference_ranks;
    const std::unique_ptr<TrainedRank> mesh =
        allocate_rank(communicator, plan.options(), plan, device);
    communicator.agree([&] {
        set_initial_values(*mesh, plan.options(), inputs);
        if (refers) reference->allocate(communicator, device, inputs);
    });
    const ModelParameters model = model_parameters(plan.options().model);
    Comparison comparison(plan, model, reference_ranks);
    const bool first = communicator.rank() == 0;
    const std::span<const Parameter> of_mesh = mesh->parameters();
    const std::span<const Parameter> of_reference =
        refers ? reference->trained().parameters() : std::span<const Parameter>();
    PlannedStep step(*mesh, plan);
    for (int64_t n = 1; n <= steps; ++n) {
        const int64_t consumed = mesh->position().consumed_samples;
        const int microbatches = plan.batch_sizes().microbatches(consumed);
        const double lr =
            learning_rate.after(learning_rate.by_samples ? consumed : mesh->position().step);
        step.begin(batches.load(consumed, microbatches), plan.index_of(microbatches));
        step.train(lr);
        communicator.barrier();  // all transfers of the mesh have ended
        communicator.agree([&] {
            if (!refers) return;
            const StepResult expected = reference->take_step(lr);
            if (first) comparison.begin_step(n, lr, step.report(), expected);
        });
        for (const LogicalParameter& parameter : model.all) {
            const auto by_rank =
                gather_values(communicator, find_parameter(of_mesh, parameter.name), device);
            const auto expected =
                gather_values(communicator, find_parameter(of_reference, parameter.name), device);
            if (first) comparison.add(by_rank, expected);
        }
        communicator.agree([&] {
            if (first) comparison.end_step(mesh->position().step);
        });
    }
    return first ? comparison.summary(steps) : std::string();
}

}  // namespace vocabpipe
