// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/graph/graph_plan.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace vocabpipe {

namespace {

constexpr int kNone = -1;

/// Scratch that is in use from step `first` to step `last`.
struct Use {
    int first = kNone;
    int last = kNone;

    void add(int step) {
        first = first == kNone ? step : std::min(first, step);
        last = std::max(last, step);
    }
    [[nodiscard]] bool overlaps(const Use& other) const {
        return first <= other.last && other.first <= last;
    }
};

/// Columns rounded up, so that tensors begin where vectors can be loaded.
int64_t aligned(int64_t columns) {
    constexpr int64_t kMultiple = 32;
    return (columns + kMultiple - 1) / kMultiple * kMultiple;
}

/// Places scratch tensors from column `begin` on, those in use at the same time beside each other.
/// Returns the end of all; `begin` if there are none. `Slot`: ValueSlot or GradientSlot.
template <class Slot>
int64_t place_scratch(std::vector<Slot>& slots, const std::vector<Use>& uses, int64_t begin) {
    std::vector<size_t> placed;  // by first column
    int64_t end = begin;
    for (size_t i = 0; i < slots.size(); ++i) {
        if (slots[i].place != Slot::Place::scratch || uses[i].first == kNone) continue;
        int64_t column = begin;
        for (const size_t other : placed) {
            if (!uses[i].overlaps(uses[other])) continue;
            if (column + slots[i].columns <= slots[other].first_column) break;
            column = std::max(column, aligned(slots[other].first_column + slots[other].columns));
        }
        slots[i].first_column = column;
        end = std::max(end, column + slots[i].columns);
        placed.push_back(i);
        std::ranges::sort(placed, {}, [&](size_t one) { return slots[one].first_column; });
    }
    return end;
}

/// How many nodes read each node, and whether it is an output; twice counts twice.
std::vector<int> count_reads(const std::vector<GraphNode>& nodes, const GraphEnds& ends) {
    std::vector<int> reads(nodes.size());
    for (const int output : ends.outputs) ++reads[index_of(output)];
    for (const GraphNode& node : nodes) {
        for (const int input : node.inputs) ++reads[index_of(input)];
    }
    return reads;
}

/// Whether no stage may end between two nodes. Only then may one operation compute both: its bits
/// may be others than those of two, and must not depend on where a model is cut.
bool in_one_layer(const std::vector<GraphNode>& nodes, int one, int other) {
    return nodes[index_of(one)].layer == nodes[index_of(other)].layer;
}

/// Makes the forward half of a plan.
class ForwardPlan {
public:
    ForwardPlan(const std::vector<GraphNode>& nodes, const GraphEnds& ends, GraphPlan& plan)
        : nodes_(nodes),
          plan_(plan),
          reads_(count_reads(nodes, ends)),
          sum_of_(nodes.size(), kNone),
          port_of_(nodes.size(), kNone),
          again_(nodes.size()) {
        for (size_t port = 0; port < ends.outputs.size(); ++port) {
            port_of_[index_of(ends.outputs[port])] = static_cast<int>(port);
        }
    }

    void make() {
        list_steps();
        pair_with_gelu();
        share_memory();
        choose_values_to_make_again();
        share_output();
        mark_steps();
        place_scratch_values();
    }

private:
    [[nodiscard]] const Operation& operation(int node) const {
        return *nodes_[index_of(node)].operation;
    }
    [[nodiscard]] int count() const { return static_cast<int>(nodes_.size()); }
    [[nodiscard]] bool is_input(int node) const {
        return nodes_[index_of(node)].operation == nullptr;
    }
    [[nodiscard]] ValueSlot& slot(int node) {
        return plan_.values[index_of(plan_.value_of_node[index_of(node)])];
    }
    [[nodiscard]] static bool is_kept(const ValueSlot& slot) {
        return slot.place == ValueSlot::Place::costly || slot.place == ValueSlot::Place::cheap;
    }

    /// The nodes that the step reads.
    [[nodiscard]] std::vector<int> inputs_of(const ForwardStep& step) const {
        std::vector<int> inputs = nodes_[index_of(step.node)].inputs;
        if (step.residual != kNone) inputs.push_back(step.residual);
        return inputs;
    }

    /// Whether the sum can be made by the operation of `term`, one of its inputs.
    [[nodiscard]] bool makes_sum(int term, int sum) const {
        const GraphNode& node = nodes_[index_of(term)];
        const bool made_again = nodes_[index_of(sum)].recomputed.value_or(false);
        return in_one_layer(nodes_, term, sum) && reads_[index_of(term)] == 1 && node.operation &&
               node.operation->adds_residual() && !node.recomputed &&
               !(made_again && node.operation->product() != nullptr);
    }

    void list_steps() {
        std::vector<ForwardStep> steps;
        for (int n = 0; n < count(); ++n) {
            if (is_input(n)) continue;
            ForwardStep& step = steps.emplace_back(ForwardStep{.node = n, .value = n});
            if (!operation(n).is_sum()) continue;
            const std::vector<int>& inputs = nodes_[index_of(n)].inputs;
            for (const size_t term : {1, 0}) {
                if (!makes_sum(inputs[term], n)) continue;
                sum_of_[index_of(inputs[term])] = n;
                step.node = inputs[term];
                step.residual = inputs[1 - term];
                break;
            }
        }
        for (const ForwardStep& step : steps) {
            if (sum_of_[index_of(step.value)] == kNone) plan_.forward.push_back(step);
        }
    }

    /// Pairs products with the GELU of their result.
    void pair_with_gelu() {
        for (size_t i = 0; i < plan_.forward.size(); ++i) {
            const int n = plan_.forward[i].node;
            if (!operation(n).is_gelu()) continue;
            for (size_t j = 0; j < i; ++j) {
                ForwardStep& product = plan_.forward[j];
                if (product.value != nodes_[index_of(n)].inputs[0] || product.residual != kNone ||
                    !in_one_layer(nodes_, product.node, n) ||
                    operation(product.node).product() == nullptr || product.gelu != kNone) {
                    continue;
                }
                product.gelu = static_cast<int>(i);
                plan_.forward[i].gelu = static_cast<int>(j);
            }
        }
    }

    [[nodiscard]] bool shares_memory(int n) const {
        if (!operation(n).in_place()) return false;
        const int in = nodes_[index_of(n)].inputs[0];
        return !is_input(in) && reads_[index_of(in)] == 1 && !nodes_[index_of(in)].recomputed &&
               !nodes_[index_of(n)].recomputed && !operation(in).reads_output();
    }

    void share_memory() {
        plan_.value_of_node.assign(nodes_.size(), kNone);
        for (int n = 0; n < count(); ++n) {
            if (sum_of_[index_of(n)] != kNone) continue;
            int& slot = plan_.value_of_node[index_of(n)];
            if (!is_input(n) && shares_memory(n)) {
                slot = plan_.value_of_node[index_of(nodes_[index_of(n)].inputs[0])];
                continue;
            }
            slot = static_cast<int>(plan_.values.size());
            plan_.values.push_back({.columns = nodes_[index_of(n)].size()});
        }
    }

    [[nodiscard]] std::vector<bool> read_by_backward() const {
        std::vector<bool> read(nodes_.size());
        for (int n = 0; n < count(); ++n) {
            if (is_input(n)) continue;
            if (operation(n).reads_output()) read[index_of(n)] = true;
            if (!operation(n).reads_inputs()) continue;
            for (const int input : nodes_[index_of(n)].inputs) read[index_of(input)] = true;
        }
        return read;
    }

    /// What is cheap to make, and within the memory budget what costs least per byte: the greedy
    /// rule for a knapsack.
    void choose_values_to_make_again() {
        for (const ForwardStep& step : plan_.forward) {
            const int n = step.value;
            again_[index_of(n)] = nodes_[index_of(n)].recomputed.value_or(operation(n).cheap());
        }
        std::vector<bool> there = place_values();
        double budget = 0, kept = 0;
        for (const ForwardStep& step : plan_.forward) {
            const double columns = columns_kept_for(step);
            if (columns == 0) continue;
            budget += columns * nodes_[index_of(step.value)].memory_budget;
            if (slot(step.value).place == ValueSlot::Place::costly) kept += columns;
        }
        while (kept > budget) {
            MadeAgain best;
            for (const ForwardStep& step : plan_.forward) {
                if (!may_be_made_again(step)) continue;
                MadeAgain made = make_again(step, there);
                if (made.cost_per_column < best.cost_per_column) best = std::move(made);
            }
            if (best.nodes.empty()) return;
            for (const int node : best.nodes) again_[index_of(node)] = true;
            kept -= static_cast<double>(slot(best.nodes.front()).columns);
            there = place_values();
        }
    }

    /// Columns of the slot of a value that is kept, by the step that makes it first; else 0.
    [[nodiscard]] double columns_kept_for(const ForwardStep& step) {
        const int of_step = plan_.value_of_node[index_of(step.value)];
        for (const ForwardStep& earlier : plan_.forward) {
            if (plan_.value_of_node[index_of(earlier.value)] != of_step) continue;
            const bool first = earlier.value == step.value;
            return first && is_kept(slot(step.value))
                       ? static_cast<double>(slot(step.value).columns)
                       : 0;
        }
        return 0;
    }

    /// A value that R makes again instead of keeping it, first, and what it needs for that and
    /// nobody keeps.
    struct MadeAgain {
        std::vector<int> nodes = {};
        double cost_per_column = std::numeric_limits<double>::infinity();
    };

    /// `there`: what place_values() has returned.
    [[nodiscard]] MadeAgain make_again(const ForwardStep& step, const std::vector<bool>& there) {
        MadeAgain made{.nodes = {step.value}};
        double cost = 0;
        for (size_t i = 0; i < made.nodes.size(); ++i) {
            const auto of = std::ranges::find(plan_.forward, made.nodes[i], &ForwardStep::value);
            cost += nodes_[index_of(of->node)].cost;
            for (const int input : inputs_of(*of)) {
                const bool known = std::ranges::find(made.nodes, input) != made.nodes.end();
                if (there[index_of(input)] || known) continue;
                // A stage's output is not there, nor is memory that another step writes later.
                if (slot(input).place != ValueSlot::Place::scratch || writers(input) > 1) return {};
                made.nodes.push_back(input);
            }
        }
        made.cost_per_column = cost / static_cast<double>(slot(step.value).columns);
        return made;
    }

    [[nodiscard]] bool may_be_made_again(const ForwardStep& step) {
        const GraphNode& node = nodes_[index_of(step.value)];
        return slot(step.value).place == ValueSlot::Place::costly && !node.recomputed &&
               node.memory_budget < 1 && !again_[index_of(step.value)] && writers(step.value) == 1;
    }

    /// Steps that write the memory of a node.
    [[nodiscard]] int64_t writers(int node) const {
        const int of_node = plan_.value_of_node[index_of(node)];
        return std::ranges::count_if(plan_.forward, [&](const ForwardStep& step) {
            return plan_.value_of_node[index_of(step.value)] == of_node;
        });
    }

    /// Places every value, by what a selective R makes again. Returns by node what it has, or
    /// makes.
    std::vector<bool> place_values() {
        using Place = ValueSlot::Place;
        const std::vector<bool> read = read_by_backward();
        // What a selective R has or can make, by node; what it can make, by slot.
        std::vector<bool> there(nodes_.size()), cheap(plan_.values.size(), true);
        plan_.copied_to_output.clear();
        for (int n = 0, port = 0; n < count(); ++n) {
            if (!is_input(n)) continue;
            slot(n).place = Place::input;
            slot(n).port = port++;
            there[index_of(n)] = true;
        }
        for (const ForwardStep& step : plan_.forward) {
            const int n = step.value;
            bool again = again_[index_of(n)];
            for (const int input : inputs_of(step)) again = again && there[index_of(input)];
            const size_t i = index_of(plan_.value_of_node[index_of(n)]);
            cheap[i] = cheap[i] && again;
            if (read[index_of(n)]) {
                plan_.values[i].place = cheap[i] ? Place::cheap : Place::costly;
            } else if (port_of_[index_of(n)] != kNone && reads_[index_of(n)] == 1) {
                plan_.values[i].place = Place::output;
                plan_.values[i].port = port_of_[index_of(n)];
            }
            there[index_of(n)] = cheap[i] || is_kept(plan_.values[i]);
        }
        for (int n = 0; n < count(); ++n) {
            const int port = port_of_[index_of(n)];
            if (port != kNone && slot(n).place != Place::output) {
                plan_.copied_to_output.push_back({.node = n, .port = port});
            }
        }
        return there;
    }

    /// A product may add to y what is there already; a norm may not (Norm::forward). Each of these
    /// values is read once, by the next sum, so that one of them at a time is in y.
    void share_output() {
        for (size_t i = plan_.forward.size(); i-- > 0;) {
            const ForwardStep& step = plan_.forward[i];
            if (step.residual == kNone || operation(step.node).product() == nullptr) continue;
            ValueSlot& residual = slot(step.residual);
            if (slot(step.value).place == ValueSlot::Place::output &&
                residual.place == ValueSlot::Place::scratch &&
                reads_[index_of(step.residual)] == 1) {
                residual.place = ValueSlot::Place::output;
                residual.port = slot(step.value).port;
            }
        }
    }

    void mark_steps() {
        std::vector<bool> backward(nodes_.size()), again(nodes_.size());  // who reads the node
        plan_.recomputed.assign(nodes_.size(), false);
        for (size_t i = plan_.forward.size(); i-- > 0;) {
            ForwardStep& step = plan_.forward[i];
            const ValueSlot& of = slot(step.value);
            const bool scratch = of.place == ValueSlot::Place::scratch;
            step.for_backward = is_kept(of) || operation(step.node).statistics() > 0 ||
                                backward[index_of(step.value)];
            step.recomputed =
                of.place == ValueSlot::Place::cheap || (scratch && again[index_of(step.value)]);
            plan_.recomputed[index_of(step.node)] = step.recomputed;
            for (const int input : inputs_of(step)) {
                if (step.for_backward) backward[index_of(input)] = true;
                if (step.recomputed) again[index_of(input)] = true;
            }
        }
    }

    void place_scratch_values() {
        std::vector<Use> uses(plan_.values.size());
        const auto use = [&](int node, size_t step) {
            uses[index_of(plan_.value_of_node[index_of(node)])].add(static_cast<int>(step));
        };
        for (size_t i = 0; i < plan_.forward.size(); ++i) {
            const ForwardStep& step = plan_.forward[i];
            use(step.value, i);
            for (const int input : inputs_of(step)) use(input, i);
            if (step.gelu > static_cast<int>(i)) use(plan_.forward[index_of(step.gelu)].value, i);
            const int64_t columns = nodes_[index_of(step.value)].size();
            if (step.residual != kNone && operation(step.node).product() != nullptr) {
                plan_.product_columns = std::max(plan_.product_columns, columns);
            }
            // Where y is not wanted, but what the operation leaves besides.
            if (slot(step.value).place == ValueSlot::Place::output && step.for_backward) {
                plan_.product_columns = std::max(plan_.product_columns, columns);
            }
        }
        for (const GraphPlan::Copied& copied : plan_.copied_to_output) {
            use(copied.node, plan_.forward.size());
        }
        const int64_t begin = aligned(plan_.product_columns);
        const int64_t end = place_scratch(plan_.values, uses, begin);
        plan_.forward_columns = end > begin ? end : 0;
    }

    const std::vector<GraphNode>& nodes_;
    GraphPlan& plan_;
    std::vector<int> reads_;
    std::vector<int> sum_of_;   ///< [node] the sum that the node's operation makes
    std::vector<int> port_of_;  ///< [node] which output it is; -1: none
    std::vector<bool> again_;   ///< [node] whether a selective R may make it again
};

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

GraphPlan::GraphPlan(const std::vector<GraphNode>& nodes, const GraphEnds& ends) {
    ForwardPlan(nodes, ends, *this).make();
    BackwardPlan(nodes, ends, *this).make();
}

}  // namespace vocabpipe
