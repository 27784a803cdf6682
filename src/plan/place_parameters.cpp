// SPDX-License-Identifier: Apache-2.0
#include "src/plan/place_parameters.hpp"

#include "src/model/blocks/counted_depth.hpp"
#include "src/model/shared_stages.hpp"
#include "src/model/tensor_shard.hpp"

#include <map>
#include <utility>

namespace vocabpipe {

void PlaceParameters::add(GradientBucket::Of of, int stage, Axis axis, int64_t elements) {
    if (elements > 0) parts_.push_back({of, stage, axis, elements});
}

int64_t PlaceParameters::stored() const {
    return trained() + frozen_;
}

int64_t PlaceParameters::trained() const {
    int64_t sum = 0;
    for (const Part& part : parts_) sum += is_copy(part) ? 0 : part.elements;
    return sum;
}

int64_t PlaceParameters::differentiated() const {
    int64_t sum = 0;
    for (const Part& part : parts_) sum += part.elements;
    return sum;
}

int64_t PlaceParameters::updated(int zero) const {
    if (zero == 0) return trained();
    int64_t sum = 0;
    for (const Part& part : parts_) {
        if (!is_copy(part)) sum += largest_part(part.elements, mesh_.size_of(part.axis));
    }
    return sum;
}

std::set<int> PlaceParameters::shared_stages() const {
    std::vector<StageElements> elements;
    for (const Part& part : parts_) {
        if (part.of != GradientBucket::Of::stage) continue;
        elements.push_back({part.stage, mesh_.size_of(part.axis), part.elements});
    }
    return vocabpipe::shared_stages(elements);
}

/// Elements that other ranks keep, of stages that ranks share.
int64_t PlaceParameters::kept_elsewhere() const {
    const std::set<int> shared = shared_stages();
    int64_t sum = 0;
    for (const Part& part : parts_) {
        if (part.of != GradientBucket::Of::stage || !shared.contains(part.stage)) continue;
        sum += part.elements - largest_part(part.elements, mesh_.size_of(part.axis));
    }
    return sum;
}

int64_t PlaceParameters::kept_weights(int zero_stage) const {
    return stored() - (zero_stage < 3 ? 0 : kept_elsewhere());
}

int64_t PlaceParameters::kept_gradients(int zero_stage) const {
    return differentiated() - (zero_stage < 2 ? 0 : kept_elsewhere());
}

int64_t PlaceParameters::reported() const {
    int64_t sum = 0;
    for (const Part& part : parts_) sum += largest_part(part.elements, mesh_.size_of(part.axis));
    return sum;
}

std::vector<GradientBucket> PlaceParameters::buckets(bool parts, int zero_stage) const {
    std::vector<GradientBucket> buckets;
    const std::set<int> shared_stages = zero_stage > 1 ? this->shared_stages() : std::set<int>();
    for (const Part& part : parts_) {
        if (is_copy(part)) continue;
        GradientBucket bucket{.of = part.of, .stage = part.stage, .axis = part.axis, .first = {}};
        const bool shared =
            part.of == GradientBucket::Of::stage && shared_stages.contains(part.stage);
        bucket.shards_gradients = zero_stage >= 2 && shared;
        bucket.shards_weights = zero_stage >= 3 && shared && mesh_.size_of(part.axis) > 1;
        const int members = parts ? mesh_.size_of(part.axis) : 1;
        bucket.first.reserve(static_cast<size_t>(members) + 1);
        // elements * member / members, without a division for each of thousands of replicas.
        int64_t first = 0, rest = 0;
        for (int member = 0; member <= members; ++member) {
            bucket.first.push_back(first);
            first += part.elements / members;
            rest += part.elements % members;
            if (rest >= members) {
                rest -= members;
                ++first;
            }
        }
        buckets.push_back(std::move(bucket));
    }
    return buckets;
}

namespace {

/// Adds the parameters of blocks, one bucket per axis, as a run does for each layer.
void add_blocks(PlaceParameters& place, int stage, const TrainedTensors::Part& part,
                const Mesh& mesh) {
    std::map<Axis, int64_t> elements;
    for (const auto& [cut, ranks] : {std::pair{TensorCut::repeated, 1},
                                     {TensorCut::rows, mesh.tensor},
                                     {TensorCut::columns, mesh.tensor},
                                     {TensorCut::experts, mesh.expert}}) {
        elements[gradient_axis(cut, mesh.tensor, mesh.expert)] += part.trained.of(cut) / ranks;
        place.add_frozen(part.frozen.of(cut) / ranks);
    }
    for (const auto& [axis, of_axis] : elements) {
        place.add(GradientBucket::Of::stage, stage, axis, of_axis);
    }
    place.add_correction_biases(part.trained.correction_biases());
}

/// Adds the parameters of all depths of multi-token prediction.
void add_depths(PlaceParameters& place, int stage, const ModelConfig& config, const Mesh& mesh) {
    TrainedTensors::Part depth;
    const CountedDepth counted(config);
    for (const ParameterCount::Counted& tensor : counted.parameters.all()) {
        depth.trained.add(tensor);
    }
    for (int k = 0; k < config.mtp_num_layers; ++k) add_blocks(place, stage, depth, mesh);
}

}  // namespace

std::vector<PlaceParameters> count_parameters(const ModelConfig& config,
                                              const TrainedTensors& tensors,
                                              const Schedule& placement, const Candidate& candidate,
                                              int mtp_stage) {
    const Mesh& mesh = candidate.mesh;
    std::vector<PlaceParameters> places(static_cast<size_t>(placement.ranks),
                                        PlaceParameters(mesh));
    const int stages = static_cast<int>(candidate.layers_per_stage.size());
    for (int stage = 0, layer = 0; stage < stages; ++stage) {
        const auto s = static_cast<size_t>(stage);
        PlaceParameters& place = places[static_cast<size_t>(placement.rank_of_stage[s])];
        const int end = layer + candidate.layers_per_stage[s];
        for (; layer < end; ++layer) add_blocks(place, stage, tensors.layer(layer), mesh);
        if (stage == mtp_stage) add_depths(place, stage, config, mesh);
        if (stage == 0) add_blocks(place, stage, tensors.positions(), mesh);
        if (stage + 1 == stages) add_blocks(place, stage, tensors.final_norm(), mesh);
    }
    const bool shared = config.tied && placement.input == placement.output;
    for (int k = 0; k < placement.ranks; ++k) {
        PlaceParameters& place = places[static_cast<size_t>(k)];
        const auto add = [&](GradientBucket::Of of, const ShardMap& map, bool trained) {
            const int64_t elements = largest_part(map.rows(k), mesh.tensor) * config.hidden_size;
            if (trained) return place.add(of, 0, Axis::data, elements);
            const bool copy = shared && of == GradientBucket::Of::output;
            if (!copy) place.add_frozen(elements);
        };
        add(GradientBucket::Of::input, placement.input, tensors.embedding());
        add(GradientBucket::Of::output, placement.output, tensors.output());
        if (shared) place.share_vocabulary();
    }
    return places;
}

}  // namespace vocabpipe
