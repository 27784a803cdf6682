// SPDX-License-Identifier: Apache-2.0
// Parameters of the ranks at one place of the pipeline, by the axis that adds up their gradients.
#pragma once

#include "src/model/trained_tensors.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/plan.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <set>
#include <vector>

namespace vocabpipe {

/// Parameters of a rank at one place of the pipeline: the rank with most, where vocabulary rows do
/// not divide evenly among tensor ranks.
class PlaceParameters {
public:
    explicit PlaceParameters(const Mesh& mesh) : mesh_(mesh) {}

    /// Adds elements whose gradients are added up over `axis`; `of` and `stage` say where they are.
    void add(GradientBucket::Of of, int stage, Axis axis, int64_t elements);
    /// Adds elements that have a weight only.
    void add_frozen(int64_t elements) { frozen_ += elements; }
    /// Adds numbers that routers have besides: fp32, without gradients and moments.
    void add_correction_biases(int64_t count) { correction_biases_ += count; }
    /// The output layer's weight is that of the input layer: one weight, two gradients.
    void share_vocabulary() { shared_ = true; }

    /// Elements with a weight here.
    [[nodiscard]] int64_t stored() const;
    [[nodiscard]] int64_t correction_biases() const { return correction_biases_; }
    /// Elements with a gradient here.
    [[nodiscard]] int64_t differentiated() const;
    /// Elements that this rank updates and has moments for: all trained ones that it stores with
    /// `zero` = 0, else a share.
    [[nodiscard]] int64_t updated(int zero = 1) const;
    /// Elements of `stored()` that outlive a step, with the ZeRO stage of Candidate::zero.
    [[nodiscard]] int64_t kept_weights(int zero_stage) const;
    /// The same of `differentiated()`.
    [[nodiscard]] int64_t kept_gradients(int zero_stage) const;
    /// Elements whose gradients it sums up for the norm.
    [[nodiscard]] int64_t reported() const;
    /// The buckets that are added up, layer by layer as in a run.
    /// `parts`: where each member's part begins; else only the begin and the end of a bucket.
    /// `zero_stage`: of Candidate::zero.
    [[nodiscard]] std::vector<GradientBucket> buckets(bool parts = true, int zero_stage = 1) const;

private:
    struct Part {
        GradientBucket::Of of = GradientBucket::Of::stage;
        int stage = 0;
        Axis axis = Axis::data;
        int64_t elements = 0;
    };
    /// Whether this is the second use of a shared weight.
    [[nodiscard]] bool is_copy(const Part& part) const {
        return shared_ && part.of == GradientBucket::Of::output;
    }

    /// Stages whose gradients ranks share with ZeRO stages 2 and 3.
    [[nodiscard]] std::set<int> shared_stages() const;
    [[nodiscard]] int64_t kept_elsewhere() const;
    /// Elements with a weight here, without frozen ones.
    [[nodiscard]] int64_t trained() const;

    Mesh mesh_;
    bool shared_ = false;
    int64_t correction_biases_ = 0, frozen_ = 0;
    std::vector<Part> parts_;
};

/// [pipeline rank] Parameters of a candidate of a model with these tensors, with its stages and
/// vocabulary rows placed as in `placement`. `mtp_stage`: the stage that has the depths of
/// multi-token prediction; -1: none.
[[nodiscard]] std::vector<PlaceParameters> count_parameters(const ModelConfig& config,
                                                            const TrainedTensors& tensors,
                                                            const Schedule& placement,
                                                            const Candidate& candidate,
                                                            int mtp_stage);

}  // namespace vocabpipe
