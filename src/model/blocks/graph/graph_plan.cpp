// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/graph/graph_plan.hpp"

#include "src/model/blocks/graph/plan_parts.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe {

namespace graph_plan {

namespace {

/// Makes the backward half of a plan.
class BackwardPlan {
public:
    BackwardPlan(const std::vector<GraphNode>& nodes, const GraphEnds& ends, GraphPlan& plan)
        : nodes_(nodes),
          ends_(ends),
          plan_(plan),
          reads_(count_reads(nodes, ends)),
          current_(nodes.size(), kNone),
          own_(nodes.size(), kNone),
          port_of_(nodes.size(), kNone) {
        for (size_t n = 0; n < nodes.size(); ++n) {
            if (!nodes[n].operation) port_of_[n] = inputs_++;
        }
    }

    void make() {
        find_needed();
        find_useful();
        take_gradients_from_outside();
        for (int n = static_cast<int>(nodes_.size()); n-- > 0;) {
            if (is_input(n) || !useful_[index_of(n)]) continue;
            if (needed_[index_of(n)] && !done_[index_of(n)]) pass_on(n);
        }
        for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
            if (!is_input(n) || current_[index_of(n)] == own_slot(n)) continue;
            plan_.backward.push_back({.dy = current_[index_of(n)], .to = {own_slot(n)}});
        }
        place_scratch_gradients();
    }

private:
    [[nodiscard]] const Operation& operation(int node) const {
        return *nodes_[index_of(node)].operation;
    }

    [[nodiscard]] bool is_input(int node) const {
        return nodes_[index_of(node)].operation == nullptr;
    }

    void find_needed() {
        needed_.resize(nodes_.size());
        for (size_t n = 0; n < nodes_.size(); ++n) {
            const GraphNode& node = nodes_[n];
            needed_[n] = !node.operation || node.operation->trains();
            for (const int input : node.inputs) {
                if (needed_[index_of(input)]) needed_[n] = true;
            }
        }
    }

    /// What only results depend on takes no part.
    void find_useful() {
        useful_.resize(nodes_.size());
        for (const int output : ends_.outputs) useful_[index_of(output)] = true;
        for (size_t n = nodes_.size(); n-- > 0;) {
            const GraphNode& node = nodes_[n];
            if (node.operation && node.operation->is_loss()) useful_[n] = true;
            if (!useful_[n]) continue;
            for (const int input : node.inputs) useful_[index_of(input)] = true;
        }
    }

    void take_gradients_from_outside() {
        int port = 0;
        for (const std::vector<int>* const nodes : {&ends_.outputs, &ends_.read_later}) {
            for (const int node : *nodes) {
                const int slot =
                    add_slot(GradientSlot::Place::outside, nodes_[index_of(node)].size());
                plan_.gradients.back().port = port++;
                shared_.back() = true;  // nobody may write there
                if (needed_[index_of(node)]) current_[index_of(node)] = slot;
            }
        }
    }

    int add_slot(GradientSlot::Place place, int64_t columns) {
        plan_.gradients.push_back({.place = place, .columns = columns});
        shared_.push_back(false);
        return static_cast<int>(plan_.gradients.size()) - 1;
    }
    /// The slot of the node's gradient itself.
    int own_slot(int node) {
        if (own_[index_of(node)] == kNone) {
            own_[index_of(node)] =
                add_slot(is_input(node) ? GradientSlot::Place::input : GradientSlot::Place::scratch,
                         nodes_[index_of(node)].size());
            if (is_input(node)) plan_.gradients.back().port = port_of_[index_of(node)];
        }
        return own_[index_of(node)];
    }
    void add_up(int node, int term) {
        plan_.backward.push_back(
            {.dy = current_[index_of(node)], .added = term, .to = {own_slot(node)}});
        current_[index_of(node)] = own_slot(node);
    }

    /// From the gradient of the node to those of its inputs; the former has all its terms.
    void pass_on(int n) {
        const Operation& of = operation(n);
        const int dy = current_[index_of(n)];
        const bool alone = std::ranges::none_of(nodes_[index_of(n)].inputs,
                                                [&](int in) { return needed_[index_of(in)]; });
        if (of.trains()) {
            const auto before = static_cast<int>(plan_.backward.size());
            plan_.weights.push_back(
                {.node = n, .kept = for_weight(dy), .dy = dy, .before = before, .alone = alone});
        }
        if (of.is_sum()) {
            shared_[index_of(dy)] = true;
            for (const int input : nodes_[index_of(n)].inputs) {
                if (!needed_[index_of(input)]) continue;
                if (current_[index_of(input)] == kNone) {
                    current_[index_of(input)] = dy;
                } else {
                    add_up(input, dy);
                }
            }
            return;
        }
        if (alone) return;
        BackwardStep step{.node = n, .dy = dy};
        std::vector<int> inputs = nodes_[index_of(n)].inputs;
        if (of.product() != nullptr && reads_[index_of(inputs[0])] == 1 && !is_input(inputs[0]) &&
            in_one_layer(nodes_, inputs[0], n) && operation(inputs[0]).is_gelu()) {
            step.gelu = inputs[0];
            done_[index_of(inputs[0])] = true;
            inputs = nodes_[index_of(inputs[0])].inputs;
        }
        std::vector<std::pair<int, int>> terms;  // input, slot
        for (const int input : inputs) {
            int& current = current_[index_of(input)];
            if (!needed_[index_of(input)]) {
                step.to.push_back(
                    add_slot(GradientSlot::Place::scratch, nodes_[index_of(input)].size()));
            } else if (current == kNone) {
                const bool in_place = of.gradient_in_place() && !of.trains() && !is_input(input) &&
                                      own_[index_of(input)] == kNone && !shared_[index_of(dy)];
                if (in_place) own_[index_of(input)] = dy;
                current = own_slot(input);
                step.to.push_back(current);
            } else if (of.adds_gradient()) {
                step.added = current;
                current = own_slot(input);
                step.to.push_back(current);
            } else {
                terms.emplace_back(
                    input, add_slot(GradientSlot::Place::scratch, nodes_[index_of(input)].size()));
                step.to.push_back(terms.back().second);
            }
        }
        plan_.backward.push_back(step);
        for (const auto& [input, term] : terms) add_up(input, term);
    }

    /// The slot in which W finds this gradient.
    int for_weight(int dy) {
        GradientSlot& slot = plan_.gradients[index_of(dy)];
        if (slot.place == GradientSlot::Place::scratch) slot.place = GradientSlot::Place::kept;
        if (slot.place == GradientSlot::Place::kept || !ends_.keep_outside_gradients) return dy;
        const int64_t columns = slot.columns;
        const int kept = add_slot(GradientSlot::Place::kept, columns);
        plan_.backward.push_back({.dy = dy, .to = {kept}, .keeps = true});
        return kept;
    }

    void place_scratch_gradients() {
        std::vector<Use> uses(plan_.gradients.size());
        for (size_t i = 0; i < plan_.backward.size(); ++i) {
            const BackwardStep& step = plan_.backward[i];
            const auto use = [&](int slot) { uses[index_of(slot)].add(static_cast<int>(i)); };
            if (step.dy != kNone) use(step.dy);
            if (step.added != kNone) use(step.added);
            for (const int slot : step.to) use(slot);
        }
        plan_.backward_columns = place_scratch(plan_.gradients, uses, 0);
        for (const WeightStep& step : plan_.weights) uses[index_of(step.dy)].add(step.before);
        std::vector<GradientSlot> whole = plan_.gradients;
        for (GradientSlot& slot : whole) {
            if (slot.place == GradientSlot::Place::kept) slot.place = GradientSlot::Place::scratch;
        }
        for (const BackwardStep& step : plan_.backward) {
            if (step.keeps) uses[index_of(step.to[0])] = {};
        }
        plan_.whole_columns = place_scratch(whole, uses, 0);
        for (const GradientSlot& slot : whole) plan_.columns_in_whole.push_back(slot.first_column);
    }

    const std::vector<GraphNode>& nodes_;
    const GraphEnds& ends_;
    GraphPlan& plan_;
    int inputs_ = 0;
    std::vector<int> reads_;
    std::vector<int> current_;  ///< [node] slot of the terms so far
    std::vector<int> own_;      ///< [node]
    std::vector<int> port_of_;  ///< [node] which input it is; -1: none
    std::vector<bool> needed_;  ///< [node] whether its gradient is
    std::vector<bool> useful_;  ///< [node] whether a loss or an output depends on it
    std::vector<bool> shared_;  ///< [slot] several nodes have this gradient
    std::vector<bool> done_ = std::vector<bool>(nodes_.size());  ///< [node]
};

}  // namespace

}  // namespace graph_plan

GraphPlan::GraphPlan(const std::vector<GraphNode>& nodes, const GraphEnds& ends) {
    graph_plan::plan_forward(nodes, ends, *this);
    graph_plan::BackwardPlan(nodes, ends, *this).make();
}

}  // namespace vocabpipe
