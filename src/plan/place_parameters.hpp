// SPDX-License-Identifier: Apache-2.0
// Parameters of the ranks at one place of the pipeline, by who adds up their gradients.
#pragma once

#include "vocabpipe/lower.hpp"
#include "vocabpipe/plan.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Of `count` things that `members` share as evenly as integers allow: the most that one has.
[[nodiscard]] constexpr int64_t largest_share(int64_t count, int members) {
    return (count + members - 1) / members;
}

/// Of a rank at one place of the pipeline: the one that has most, where vocabulary rows do not
/// divide among tensor ranks.
class PlaceParameters {
public:
    explicit PlaceParameters(const Mesh& mesh) : mesh_(mesh) {}

    /// Elements whose gradients are added up over an axis, and where they are.
    void add(GradientBucket::Of of, int stage, Axis axis, int64_t elements);
    /// The output layer's rows are those of the input layer: one weight, two gradients.
    void share_vocabulary() { shared_ = true; }

    /// Elements that have a weight here.
    [[nodiscard]] int64_t stored() const;
    /// And a gradient.
    [[nodiscard]] int64_t differentiated() const;
    /// That this rank updates, and has moments of.
    [[nodiscard]] int64_t updated() const;
    /// Whose gradients it sums up for the norm.
    [[nodiscard]] int64_t reported() const;
    /// What is added up, layer by layer as in a run.
    [[nodiscard]] std::vector<GradientBucket> buckets() const;

private:
    struct Part {
        GradientBucket::Of of = GradientBucket::Of::stage;
        int stage = 0;
        Axis axis = Axis::data;
        int64_t elements = 0;
    };
    /// The other weight of a shared one.
    [[nodiscard]] bool is_copy(const Part& part) const {
        return shared_ && part.of == GradientBucket::Of::output;
    }

    Mesh mesh_;
    bool shared_ = false;
    std::vector<Part> parts_;
};

/// [pipeline rank] Of a candidate whose stages and vocabulary rows are placed like this.
[[nodiscard]] std::vector<PlaceParameters> count_parameters(const TransformerShape& model,
                                                            const Schedule& placement,
                                                            const Candidate& candidate);

}  // namespace vocabpipe
