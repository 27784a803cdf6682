// SPDX-License-Identifier: Apache-2.0
#include "src/model/gradient_buckets.hpp"

#include "src/model/parameters.hpp"

#include <algorithm>
#include <numeric>

namespace vocabpipe {

namespace {

/// One parameter in the memory of its bucket.
struct Place {
    int64_t begin = 0;
    int64_t size = 0;
    int64_t unit = 1;  ///< it may be cut at multiples of so many elements
};

std::vector<Place> places_of(const std::vector<LogicalParameter>& logical,
                             const std::vector<ParameterRows>& rows,
                             const ParameterBucket& bucket) {
    std::vector<Place> places;
    int64_t begin = 0;
    for (size_t i = 0; i < bucket.parameters; ++i) {
        const ParameterRows& part = rows[bucket.first_parameter + i];
        const LogicalParameter& of = logical[static_cast<size_t>(part.id)];
        // Replicas do not exchange correction biases: each updates its own.
        const int64_t size = of.correction_bias ? 0 : part.rows * of.cols;
        // Only matrices decay; a matrix may have a single row.
        const int64_t unit =
            of.weight_decay ? std::lcm(of.cols, kBucketAlignment) : kBucketAlignment;
        places.push_back({begin, size, unit});
        begin += padded_elements(size);
    }
    return places;
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

std::vector<ParameterBucket> gradient_buckets(const ModelConfig& config,
                                              const std::vector<ParameterRows>& rows,
                                              int replicas) {
    const std::vector<LogicalParameter> logical = logical_parameters(config);
    std::vector<ParameterBucket> buckets;
    for (size_t i = 0; i < rows.size(); ++i) {
        const ParameterRows& part = rows[i];
        if (part.shares_previous_weight) continue;
        const bool goes_on =
            i > 0 && part.layer != ParameterRows::kNoLayer && part.layer == rows[i - 1].layer;
        if (!goes_on) {
            buckets.push_back(
                {.first_parameter = i, .cut = {.of = part.of, .stage = part.stage, .first = {}}});
        }
        ++buckets.back().parameters;
    }
    for (ParameterBucket& bucket : buckets) {
        const std::vector<Place> places = places_of(logical, rows, bucket);
        const int64_t total = places.back().begin + padded_elements(places.back().size);
        for (int replica = 0; replica < replicas; ++replica) {
            bucket.cut.first.push_back(cut_near(places, total * replica / replicas));
        }
        bucket.cut.first.push_back(total);
    }
    return buckets;
}

void own_part(const ModelConfig& config, const std::vector<ParameterBucket>& buckets, int replica,
              std::vector<ParameterRows>& rows) {
    const std::vector<LogicalParameter> logical = logical_parameters(config);
    const auto r = static_cast<size_t>(replica);
    for (const ParameterBucket& bucket : buckets) {
        const std::vector<Place> places = places_of(logical, rows, bucket);
        for (size_t i = 0; i < bucket.parameters; ++i) {
            const int64_t begin = places[i].begin;
            const auto inside = [&](int64_t cut) {
                return std::clamp<int64_t>(cut - begin, 0, places[i].size);
            };
            const int64_t first = inside(bucket.cut.first[r]);
            ParameterRows& part = rows[bucket.first_parameter + i];
            part.owned = {first, inside(bucket.cut.first[r + 1]) - first};
            // Which the first one writes to files.
            const bool bias = logical[static_cast<size_t>(part.id)].correction_bias;
            if (bias) part.owned = {0, replica == 0 ? ElementRange{}.count : 0};
        }
    }
}

}  // namespace vocabpipe
