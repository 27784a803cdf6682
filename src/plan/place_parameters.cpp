// SPDX-License-Identifier: Apache-2.0
#include "src/plan/place_parameters.hpp"

#include <cmath>

namespace vocabpipe {

void PlaceParameters::add(GradientBucket::Of of, int stage, Axis axis, int64_t elements) {
    if (elements > 0) parts_.push_back({of, stage, axis, elements});
}

int64_t PlaceParameters::stored() const {
    int64_t sum = 0;
    for (const Part& part : parts_) sum += is_copy(part) ? 0 : part.elements;
    return sum;
}

int64_t PlaceParameters::differentiated() const {
    int64_t sum = 0;
    for (const Part& part : parts_) sum += part.elements;
    return sum;
}

int64_t PlaceParameters::updated() const {
    int64_t sum = 0;
    for (const Part& part : parts_) {
        if (!is_copy(part)) sum += largest_share(part.elements, mesh_.size_of(part.axis));
    }
    return sum;
}

int64_t PlaceParameters::reported() const {
    int64_t sum = 0;
    for (const Part& part : parts_) sum += largest_share(part.elements, mesh_.size_of(part.axis));
    return sum;
}

std::vector<GradientBucket> PlaceParameters::buckets() const {
    std::vector<GradientBucket> buckets;
    for (const Part& part : parts_) {
        if (is_copy(part)) continue;
        GradientBucket bucket{.of = part.of, .stage = part.stage, .axis = part.axis, .first = {}};
        const int members = mesh_.size_of(part.axis);
        for (int member = 0; member <= members; ++member) {
            bucket.first.push_back(part.elements * member / members);
        }
        buckets.push_back(std::move(bucket));
    }
    return buckets;
}

std::vector<PlaceParameters> count_parameters(const TransformerShape& model,
                                              const Schedule& placement,
                                              const Candidate& candidate) {
    const Mesh& mesh = candidate.mesh;
    const std::vector<int>& layers = candidate.layers_per_stage;
    const TransformerShape::LayerParameters layer = model.layer_parameters();
    // Each tensor rank has different tokens, and so a part of the gradient of repeated parameters.
    const Axis repeated = mesh.tensor > 1 ? Axis::data_tensor : Axis::data;
    std::vector<PlaceParameters> places(static_cast<size_t>(placement.ranks),
                                        PlaceParameters(mesh));
    for (size_t stage = 0; stage < layers.size(); ++stage) {
        PlaceParameters& place = places[static_cast<size_t>(placement.rank_of_stage[stage])];
        const int s = static_cast<int>(stage);
        const auto add = [&](Axis axis, double elements) {
            place.add(GradientBucket::Of::stage, s, axis, std::llround(elements));
        };
        for (int i = 0; i < layers[stage]; ++i) {
            add(Axis::data, layer.cut / mesh.tensor);
            add(repeated, layer.repeated);
            add(mesh.expert > 1 ? Axis::expert_data : repeated, layer.experts / mesh.expert);
        }
        const auto hidden = static_cast<double>(model.hidden_size);
        if (stage == 0) add(repeated, static_cast<double>(model.learned_positions) * hidden);
        if (stage + 1 == layers.size()) add(repeated, (model.layer_norm ? 2 : 1) * hidden);
    }
    for (int k = 0; k < placement.ranks; ++k) {
        PlaceParameters& place = places[static_cast<size_t>(k)];
        const auto rows = [&](const ShardMap& map) {
            return largest_share(map.rows(k), mesh.tensor) * model.hidden_size;
        };
        place.add(GradientBucket::Of::input, 0, Axis::data, rows(placement.input));
        place.add(GradientBucket::Of::output, 0, Axis::data, rows(placement.output));
        if (model.tied && placement.input == placement.output) place.share_vocabulary();
    }
    return places;
}

}  // namespace vocabpipe
