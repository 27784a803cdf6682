// SPDX-License-Identifier: Apache-2.0
#include "src/model/gradient_buckets.hpp"

#include "src/model/parameters.hpp"
#include "src/model/shared_stages.hpp"

#include <algorithm>
#include <numeric>
#include <set>

namespace vocabpipe {

namespace {

/// One parameter in the memory of its bucket.
struct Place {
    int64_t begin = 0;
    int64_t size = 0;
    int64_t unit = 1;  ///< elements; cuts are at multiples of it
};

std::vector<Place> places_of(const std::vector<LogicalParameter>& logical,
                             const std::vector<ParameterRows>& rows,
                             const ParameterBucket& bucket) {
    std::vector<Place> places;
    int64_t begin = 0;
    for (const size_t i : bucket.parameters) {
        const ParameterRows& part = rows[i];
        const LogicalParameter& of = logical[static_cast<size_t>(part.id)];
        const int64_t size = part.memory_size();
        // Only matrices decay; a matrix may have a single row.
        const int64_t unit = of.weight_decay ? std::lcm(part.shard.column_count(), kBucketAlignment)
                                             : kBucketAlignment;
        places.push_back({begin, size, unit});
        begin += padded_elements(size);
    }
    return places;
}

/// Whether ranks add up gradients of the parameter: each updates its own correction biases, and
/// nobody a frozen parameter.
bool is_exchanged(const std::vector<LogicalParameter>& logical, const ParameterRows& part) {
    return !part.frozen && !logical[static_cast<size_t>(part.id)].correction_bias;
}

bool same_layer(const ParameterRows& a, const ParameterRows& b) {
    return a.layer != ParameterRows::kNoLayer && a.layer == b.layer;
}

/// The cut nearest to `wanted`.
int64_t cut_near(const std::vector<Place>& places, int64_t wanted) {
    const auto after = std::upper_bound(places.begin(), places.end(), wanted,
                                        [](int64_t at, const Place& p) { return at < p.begin; });
    const Place& in = *std::prev(after);
    const int64_t inside = (wanted - in.begin + in.unit / 2) / in.unit * in.unit;
    return in.begin + (inside >= in.size ? padded_elements(in.size) : inside);
}

}  // namespace

std::vector<size_t> memory_order(const std::vector<ParameterRows>& rows) {
    std::vector<size_t> order(rows.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (auto begin = order.begin(); begin != order.end();) {
        const auto end = std::find_if(begin + 1, order.end(),
                                      [&](size_t i) { return !same_layer(rows[*begin], rows[i]); });
        std::stable_sort(begin, end,
                         [&](size_t a, size_t b) { return rows[a].axis < rows[b].axis; });
        begin = end;
    }
    return order;
}

std::vector<ParameterBucket> gradient_buckets(const ModelConfig& config,
                                              const std::vector<ParameterRows>& rows,
                                              const Mesh& mesh) {
    const std::vector<LogicalParameter> logical = logical_parameters(config);
    std::vector<ParameterBucket> buckets;
    const ParameterRows* before = nullptr;
    for (const size_t i : memory_order(rows)) {
        const ParameterRows& part = rows[i];
        const bool goes_on =
            before != nullptr && same_layer(*before, part) && before->axis == part.axis;
        if (part.shares_previous_weight || !is_exchanged(logical, part)) continue;
        before = &part;
        if (!goes_on) {
            buckets.push_back(
                {.parameters = {},
                 .cut = {.of = part.of, .stage = part.stage, .axis = part.axis, .first = {}}});
        }
        buckets.back().parameters.push_back(i);
    }
    for (ParameterBucket& bucket : buckets) {
        const std::vector<Place> places = places_of(logical, rows, bucket);
        for (const Place& place : places) bucket.begins.push_back(place.begin);
        const int64_t total = places.back().begin + padded_elements(places.back().size);
        const int members = mesh.size_of(bucket.cut.axis);
        for (int member = 0; member < members; ++member) {
            bucket.cut.first.push_back(cut_near(places, total * member / members));
        }
        bucket.cut.first.push_back(total);
    }
    return buckets;
}

void shard_buckets(int zero_stage, std::vector<ParameterBucket>& buckets) {
    std::vector<StageElements> elements;
    for (const ParameterBucket& bucket : buckets) {
        if (bucket.cut.of != GradientBucket::Of::stage) continue;
        elements.push_back({bucket.cut.stage, static_cast<int>(bucket.cut.first.size()) - 1,
                            bucket.cut.first.back()});
    }
    const std::set<int> shared = shared_stages(elements);
    for (ParameterBucket& bucket : buckets) {
        GradientBucket& cut = bucket.cut;
        if (cut.of != GradientBucket::Of::stage || !shared.contains(cut.stage)) continue;
        cut.shards_gradients = zero_stage >= 2;
        cut.shards_weights = zero_stage >= 3 && cut.first.size() > 2;
    }
}

void own_part(const ModelConfig& config, const Mesh& mesh, const Mesh::Place& place,
              std::vector<ParameterBucket>& buckets, std::vector<ParameterRows>& rows) {
    const std::vector<LogicalParameter> logical = logical_parameters(config);
    // This rank among those that add up gradients over an axis.
    const auto member_along = [&](Axis axis) {
        const std::vector<int> members = mesh.ranks_along(axis, place);
        return static_cast<size_t>(
            std::find(members.begin(), members.end(), mesh.world_rank(place)) - members.begin());
    };
    for (ParameterRows& part : rows) {
        if (is_exchanged(logical, part)) continue;
        // The first rank writes it to files.
        part.owned = {0, member_along(part.axis) == 0 ? ElementRange{}.count : 0};
    }
    for (ParameterBucket& bucket : buckets) {
        const size_t member = bucket.member = member_along(bucket.cut.axis);
        const std::vector<Place> places = places_of(logical, rows, bucket);
        for (size_t i = 0; i < bucket.parameters.size(); ++i) {
            ParameterRows& part = rows[bucket.parameters[i]];
            const auto inside = [&](int64_t cut) {
                return std::clamp<int64_t>(cut - places[i].begin, 0, part.size());
            };
            const int64_t first = inside(bucket.cut.first[member]);
            part.owned = {first, inside(bucket.cut.first[member + 1]) - first};
        }
    }
}

}  // namespace vocabpipe
