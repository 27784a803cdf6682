// SPDX-License-Identifier: Apache-2.0
#include "src/select/similar_groups.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <span>
#include <utility>

namespace vocabpipe {

namespace {

constexpr int64_t kReadAtOnce = 8192;

/// Sets of samples that are joined; each has its smallest sample as its name.
class JoinedSamples {
public:
    explicit JoinedSamples(int64_t samples) : above_(static_cast<size_t>(samples)) {
        std::iota(above_.begin(), above_.end(), int64_t{0});
    }
    int64_t name_of(int64_t sample) {
        while (at(sample) != sample) {
            at(sample) = at(at(sample));  // halves the way of those that come after
            sample = at(sample);
        }
        return sample;
    }
    void join(int64_t a, int64_t b) {
        a = name_of(a);
        b = name_of(b);
        at(std::max(a, b)) = std::min(a, b);
    }

private:
    int64_t& at(int64_t sample) { return above_[static_cast<size_t>(sample)]; }

    std::vector<int64_t> above_;
};

std::vector<bool> chosen_of(const SubsetReader& subset, int64_t samples) {
    std::vector<bool> chosen(static_cast<size_t>(samples));
    std::vector<int64_t> some(static_cast<size_t>(std::min(kReadAtOnce, subset.count())));
    for (int64_t first = 0; first < subset.count(); first += kReadAtOnce) {
        const auto part = std::span(some).first(
            static_cast<size_t>(std::min(kReadAtOnce, subset.count() - first)));
        subset.read(first, part);
        for (const int64_t sample : part) chosen[static_cast<size_t>(sample)] = true;
    }
    return chosen;
}

}  // namespace

SimilarGroups similar_groups(const GraphFile& graph, const SubsetReader& subset, int32_t similarity,
                             size_t most, size_t members) {
    const int64_t samples = graph.nodes();
    JoinedSamples joined(samples);
    GraphRows rows(graph);
    for (int64_t v = 0; v < samples; ++v) {
        const GraphRow row = rows.at(v);
        for (size_t i = 0; i < row.degree(); ++i) {
            if (row.neighbours[i] > v && row.similarities[i] >= similarity)
                joined.join(v, row.neighbours[i]);
        }
    }
    const std::vector<bool> chosen = chosen_of(subset, samples);
    std::vector<int64_t> size(static_cast<size_t>(samples));
    for (int64_t v = 0; v < samples; ++v) ++size[static_cast<size_t>(joined.name_of(v))];

    SimilarGroups result;
    std::vector<std::pair<int64_t, int64_t>> largest;  // minus the size, and the name
    for (int64_t v = 0; v < samples; ++v) {
        const int64_t of_group = size[static_cast<size_t>(v)];
        if (of_group < 2) continue;
        ++result.groups;
        largest.emplace_back(-of_group, v);
        if (largest.size() < 2 * most + 1) continue;
        std::ranges::sort(largest);
        largest.resize(most);
    }
    std::ranges::sort(largest);
    if (largest.size() > most) largest.resize(most);

    std::map<int64_t, size_t> place;
    for (const auto& [size_of_group, name] : largest) {
        place[name] = result.largest.size();
        result.largest.push_back({.samples = -size_of_group});
    }
    std::vector<bool> any_chosen(static_cast<size_t>(samples));  // by the group's name
    for (int64_t v = 0; v < samples; ++v) {
        const int64_t name = joined.name_of(v);
        if (size[static_cast<size_t>(name)] < 2) continue;
        const bool is_chosen = chosen[static_cast<size_t>(v)];
        ++result.samples;
        if (is_chosen) {
            ++result.chosen;
            any_chosen[static_cast<size_t>(name)] = true;
        }
        const auto found = place.find(name);
        if (found == place.end()) continue;
        SimilarGroup& group = result.largest[found->second];
        group.chosen += is_chosen ? 1 : 0;
        std::vector<int64_t>& some = is_chosen ? group.some_chosen : group.some_left_out;
        if (some.size() < members) some.push_back(v);
    }
    result.without = result.groups - std::ranges::count(any_chosen, true);
    return result;
}

}  // namespace vocabpipe
