// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/graph/plan_parts.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace vocabpipe::graph_plan {

namespace {

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
        first_writer_.assign(plan_.values.size(), nullptr);
        writers_.assign(plan_.values.size(), 0);
        for (const ForwardStep& step : plan_.forward) {
            const int n = step.value;
            again_[index_of(n)] = nodes_[index_of(n)].recomputed.value_or(operation(n).cheap());
            const ForwardStep*& first = first_writer_[slot_of(n)];
            if (first == nullptr) first = &step;
            ++writers_[slot_of(n)];
        }
        std::vector<bool> there = place_values();
        double budget = 0;
        for (size_t i = 0; i < plan_.values.size(); ++i) {
            if (!is_kept(plan_.values[i])) continue;
            budget += static_cast<double>(plan_.values[i].columns) *
                      nodes_[index_of(first_writer_[i]->value)].memory_budget;
        }
        for (double kept = kept_columns(), before = kept + 1; kept > budget && kept < before;
             kept = kept_columns()) {
            before = kept;
            MadeAgain best;
            for (size_t i = 0; i < plan_.values.size(); ++i) {
                if (!may_be_made_again(i)) continue;
                MadeAgain made = make_again(*first_writer_[i], there);
                if (made.cost_per_column < best.cost_per_column) best = std::move(made);
            }
            if (best.nodes.empty()) return;
            for (const int node : best.nodes) again_[index_of(node)] = true;
            there = place_values();
        }
    }

    [[nodiscard]] size_t slot_of(int node) const {
        return index_of(plan_.value_of_node[index_of(node)]);
    }

    /// Columns that a selective R does not make again.
    [[nodiscard]] double kept_columns() const {
        double sum = 0;
        for (const ValueSlot& slot : plan_.values) {
            if (slot.place == ValueSlot::Place::costly) sum += static_cast<double>(slot.columns);
        }
        return sum;
    }

    [[nodiscard]] bool may_be_made_again(size_t slot) const {
        if (plan_.values[slot].place != ValueSlot::Place::costly || writers_[slot] > 1)
            return false;
        const GraphNode& node = nodes_[index_of(first_writer_[slot]->value)];
        return node.memory_budget < 1 && node.recomputed.value_or(true);
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
            const ForwardStep& of = *first_writer_[slot_of(made.nodes[i])];
            cost += nodes_[index_of(of.node)].cost;
            for (const int input : inputs_of(of)) {
                const bool known = std::ranges::find(made.nodes, input) != made.nodes.end();
                if (there[index_of(input)] || known) continue;
                // A stage's output is not there, nor is memory that another step writes later.
                if (slot(input).place != ValueSlot::Place::scratch ||
                    writers_[slot_of(input)] > 1) {
                    return {};
                }
                made.nodes.push_back(input);
            }
        }
        made.cost_per_column = cost / static_cast<double>(slot(step.value).columns);
        return made;
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
    std::vector<const ForwardStep*> first_writer_;  ///< [slot]
    std::vector<int> writers_;                      ///< [slot] steps that write its memory
};

}  // namespace

void plan_forward(const std::vector<GraphNode>& nodes, const GraphEnds& ends, GraphPlan& plan) {
    ForwardPlan(nodes, ends, plan).make();
}

}  // namespace vocabpipe::graph_plan
