// SPDX-License-Identifier: Apache-2.0
#include "src/step/optimizer/non_finite.hpp"

#include "src/model/model_rank_internals.hpp"
#include "src/model/parameters.hpp"
#include "vocabpipe/operators.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace vocabpipe {

namespace {

enum class Kind : int32_t { weight, gradient, loss };

/// A finding, as a rank sends it.
struct Finding {
    Kind kind;
    int32_t id;
};

/// Which of `tensors` have a sum of squares that is not finite. The sums are made on the device and
/// downloaded once.
std::vector<bool> not_finite(ModelRank& model, Context& ctx,
                             const std::vector<ConstTensor>& tensors) {
    Device& device = model.device();
    std::vector<double> sums(tensors.size());
    const DeviceMemory memory =
        device.allocate(sums.size() * sizeof(double), "the search for numbers that are not finite");
    auto* const numbers = reinterpret_cast<double*>(memory.data());
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (tensors[i]) ctx.operators().sum_of_squares(ctx, tensors[i], numbers + i);
    }
    device.download(memory.data(), std::as_writable_bytes(std::span(sums)));
    std::vector<bool> found;
    for (const double sum : sums) found.push_back(!std::isfinite(sum));
    return found;
}

std::vector<Finding> on_this_rank(ModelRank& model, int rank, Context& ctx) {
    std::vector<Finding> findings;
    std::vector<ConstTensor> weights, gradients;
    for (const Parameter& p : ModelRankInternals::store(model).parameters()) {
        weights.emplace_back(p.master);
        gradients.emplace_back(p.lasting_gradient());
    }
    const std::vector<int>& ids = ModelRankInternals::store(model).ids();
    const auto add = [&](Kind kind, const std::vector<ConstTensor>& tensors) {
        const std::vector<bool> bad = not_finite(model, ctx, tensors);
        for (size_t i = 0; i < bad.size(); ++i) {
            if (bad[i]) findings.push_back({kind, ids[i]});
        }
    };
    add(Kind::weight, weights);
    add(Kind::gradient, gradients);
    std::vector<std::span<const double>> all = model.stage_losses();
    if (model.output() != nullptr) all.push_back(model.output()->losses());
    for (const std::span<const double> on_device : all) {
        std::vector<double> losses(on_device.size());
        model.device().download(reinterpret_cast<const std::byte*>(on_device.data()),
                                std::as_writable_bytes(std::span(losses)));
        for (size_t i = 0; i < losses.size(); ++i) {
            const int of_step =
                static_cast<int>(i) * model.mesh().data + model.mesh().replica(rank);
            if (!std::isfinite(losses[i])) findings.push_back({Kind::loss, of_step});
        }
    }
    return findings;
}

/// Without the sign of a NaN, which means nothing.
std::string number(double value) {
    return std::isnan(value) ? "nan" : std::to_string(value);
}

/// Inserts by id, and keeps the lowest rank.
void add_once(std::vector<NonFinitePlace>& places, NonFinitePlace place) {
    const auto at = std::lower_bound(
        places.begin(), places.end(), place,
        [](const NonFinitePlace& a, const NonFinitePlace& b) { return a.id < b.id; });
    if (at == places.end() || at->id != place.id) places.insert(at, place);
}

}  // namespace

NonFinite find_non_finite(Communicator& communicator, ModelRank& model, Context& ctx) {
    const std::vector<Finding> mine = on_this_rank(model, communicator.rank(), ctx);
    const auto all = communicator.all_gather(std::as_bytes(std::span(mine)));
    NonFinite found;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        std::vector<Finding> findings(all[rank].size() / sizeof(Finding));
        if (!findings.empty()) std::memcpy(findings.data(), all[rank].data(), all[rank].size());
        for (const Finding& finding : findings) {
            add_once(finding.kind == Kind::weight     ? found.weights
                     : finding.kind == Kind::gradient ? found.gradients
                                                      : found.losses,
                     {.id = finding.id, .rank = static_cast<int>(rank)});
        }
    }
    return found;
}

std::string describe_non_finite(const NonFinite& found, const ModelConfig& config, int64_t step,
                                double loss, double grad_norm) {
    const std::vector<LogicalParameter> tensors = logical_parameters(config);
    const auto on = [&](const NonFinitePlace& place) {
        return tensors[static_cast<size_t>(place.id)].name + " on rank " +
               std::to_string(place.rank);
    };
    const auto some = [&](const std::vector<NonFinitePlace>& places, const char* what) {
        return std::string(what) + " of " + std::to_string(places.size()) + " of " +
               std::to_string(tensors.size()) + " tensors are not finite, first ";
    };
    std::string text = "step " + std::to_string(step) + ": loss " + number(loss) +
                       ", gradient norm " + number(grad_norm);
    if (!found.weights.empty()) {
        text += "; " + some(found.weights, "weights") + on(found.weights.front());
    }
    if (!found.losses.empty()) {
        text +=
            found.losses.size() == 1 ? "; the loss of microbatch" : "; the losses of microbatches";
        // The first few show whether one sample is to blame or all are.
        const size_t shown = std::min<size_t>(found.losses.size(), 8);
        for (size_t i = 0; i < shown; ++i) {
            text += (i == 0 ? " " : ", ") + std::to_string(found.losses[i].id);
        }
        if (shown < found.losses.size()) {
            text += " and " + std::to_string(found.losses.size() - shown) + " others";
        }
        text += found.losses.size() == 1 ? " is not finite" : " are not finite";
    }
    if (!found.gradients.empty()) {
        // The backward goes down the ids; a tied embedding, id 0, has gradients from both ends.
        text += "; " + some(found.gradients, "gradients") + "in the backward " +
                on(found.gradients.back());
    }
    return text;
}

}  // namespace vocabpipe
