// SPDX-License-Identifier: Apache-2.0
// Profile files: one versioned JSON object. Every key is required (except those added later, such
// as for recomputation and tensor ranks), so that a truncated or misspelt file is refused instead
// of read as zero costs.
#include "vocabpipe/profile.hpp"

#include "src/support/joined.hpp"
#include "src/support/json_text.hpp"
#include "src/support/output_file.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/support/strict_json.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace vocabpipe {

namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr size_t kMostStages = std::numeric_limits<uint16_t>::max();  // Pass::stage has 16 bits
constexpr size_t kMostLinks = 1 << 16;
constexpr int64_t kMostNs = int64_t{1} << 40;     // 18 minutes; sums over a step stay in 64 bits
constexpr int64_t kMostBytes = int64_t{1} << 50;  // sums over a step stay in 64 bits
constexpr int64_t kMostCount = int64_t{1} << 40;

constexpr std::array kStageOps{Op::F, Op::B, Op::I, Op::W, Op::R};
constexpr std::array kRankOps{Op::E, Op::G, Op::S, Op::T, Op::Reduce, Op::Report, Op::Update};
constexpr std::array kLinks{Do::send, Do::broadcast, Do::all_gather, Do::all_to_all, Do::gather};
constexpr int64_t kMostCores = 65535;
constexpr int64_t kMostTensorRanks = 65535;
constexpr int64_t kMostSlowdown = 1'000'000;  // a thousand times as long
constexpr std::array kAlgorithms{
    std::pair{CollectiveAlgorithm::linear, "linear"}, std::pair{CollectiveAlgorithm::ring, "ring"},
    std::pair{CollectiveAlgorithm::tree, "tree"}, std::pair{CollectiveAlgorithm::direct, "direct"}};
constexpr std::array kCollectives{std::pair{"broadcast", &CollectiveAlgorithms::broadcast},
                                  std::pair{"all_gather", &CollectiveAlgorithms::all_gather},
                                  std::pair{"gather", &CollectiveAlgorithms::gather},
                                  std::pair{"all_to_all", &CollectiveAlgorithms::all_to_all}};
constexpr std::array kBarriers{std::pair{Barriers::in_line, "in_line"},
                               std::pair{Barriers::one, "one"}, std::pair{Barriers::two, "two"}};

/// An integer member of a struct with its key; one table for reading and writing.
template <typename Struct, typename Int>
struct Field {
    const char* key;
    Int Struct::*member;
    int64_t most;
    bool required = true;
};

constexpr std::array kStageBytes{
    Field<StageBytes, int64_t>{"saved", &StageBytes::saved, kMostBytes},
    // Optional, as R among the costs: older profiles have no recomputation; 0.
    Field<StageBytes, int64_t>{"recomputed", &StageBytes::recomputed, kMostBytes, false},
    Field<StageBytes, int64_t>{"for_weight", &StageBytes::for_weight, kMostBytes},
    Field<StageBytes, int64_t>{"forward_workspace", &StageBytes::forward_workspace, kMostBytes},
    Field<StageBytes, int64_t>{"backward_workspace", &StageBytes::backward_workspace, kMostBytes},
    Field<StageBytes, int64_t>{"input_gradient_workspace", &StageBytes::input_gradient_workspace,
                               kMostBytes},
    Field<StageBytes, int64_t>{"weight_gradient_workspace", &StageBytes::weight_gradient_workspace,
                               kMostBytes},
};
constexpr std::array kShardBytes{
    Field<ShardBytes, int64_t>{"exp_logits", &ShardBytes::exp_logits, kMostBytes},
    Field<ShardBytes, int64_t>{"score_workspace", &ShardBytes::score_workspace, kMostBytes},
    Field<ShardBytes, int64_t>{"weight_gradient_workspace", &ShardBytes::weight_gradient_workspace,
                               kMostBytes},
};
constexpr std::array kPersistentBytes{
    Field<PersistentBytes, uint64_t>{"weights", &PersistentBytes::weights, kMostBytes},
    Field<PersistentBytes, uint64_t>{"gradients", &PersistentBytes::gradients, kMostBytes},
    Field<PersistentBytes, uint64_t>{"optimizer", &PersistentBytes::optimizer, kMostBytes},
};
constexpr std::array kModel{
    Field<ProfiledModel, int64_t>{"hidden", &ProfiledModel::hidden, kMostCount},
    Field<ProfiledModel, int64_t>{"ffn_hidden", &ProfiledModel::ffn_hidden, kMostCount},
    Field<ProfiledModel, int64_t>{"heads", &ProfiledModel::heads, kMostCount},
    Field<ProfiledModel, int64_t>{"seq_length", &ProfiledModel::seq_length, kMostCount},
    Field<ProfiledModel, int64_t>{"micro_batch_size", &ProfiledModel::micro_batch_size, kMostCount},
    Field<ProfiledModel, int64_t>{"vocab", &ProfiledModel::vocab, kMostCount},
};

template <typename Struct, typename Int, size_t N>
json fields_to_json(const Struct& from, const std::array<Field<Struct, Int>, N>& fields) {
    json object = json::object();
    for (const auto& field : fields) object[field.key] = from.*(field.member);
    return object;
}

template <typename Struct, typename Int, size_t N>
void read_fields(const StrictJson& from, const std::array<Field<Struct, Int>, N>& fields,
                 Struct& into) {
    for (const auto& field : fields) {
        if (!field.required && !from.has(field.key)) continue;
        into.*(field.member) = static_cast<Int>(from.at(field.key).integer(0, field.most));
    }
}

/// A list of objects of integers, [stage] or [rank].
template <typename Struct, typename Int, size_t N>
std::vector<Struct> read_list(const StrictJson& from,
                              const std::array<Field<Struct, Int>, N>& fields) {
    std::vector<Struct> list;
    for (const StrictJson& entry : from.items(kMostStages)) {
        [&]<size_t... I>(std::index_sequence<I...>) {
            entry.only({fields[I].key...});
        }
        (std::make_index_sequence<N>{});
        read_fields(entry, fields, list.emplace_back());
    }
    return list;
}

template <typename Struct, typename Int, size_t N>
json list_to_json(const std::vector<Struct>& list,
                  const std::array<Field<Struct, Int>, N>& fields) {
    json array = json::array();
    for (const Struct& entry : list) array.push_back(fields_to_json(entry, fields));
    return array;
}

template <size_t N>
json costs_to_json(const std::vector<TableCosts::OpCosts>& table, const std::array<Op, N>& ops) {
    json array = json::array();
    for (const TableCosts::OpCosts& costs : table) {
        json object = json::object();
        for (const Op op : ops) {
            object[std::string(traits(op).name)] = costs[static_cast<size_t>(op)];
        }
        array.push_back(object);
    }
    return array;
}

template <size_t N>
std::vector<TableCosts::OpCosts> read_costs(const StrictJson& from, const std::array<Op, N>& ops) {
    std::vector<TableCosts::OpCosts> table;
    for (const StrictJson& entry : from.items(kMostStages)) {
        [&]<size_t... I>(std::index_sequence<I...>) {
            entry.only({traits(ops[I]).name...});
        }
        (std::make_index_sequence<N>{});
        TableCosts::OpCosts& costs = table.emplace_back();
        for (const Op op : ops) {
            if (op == Op::R && !entry.has(traits(op).name)) continue;
            costs[static_cast<size_t>(op)] = entry.at(traits(op).name).integer(0, kMostNs);
        }
    }
    if (table.empty()) from.fail("is empty; add at least one entry");
    return table;
}

template <typename Int>
std::vector<Int> read_integers(const StrictJson& from, int64_t most) {
    std::vector<Int> list;
    for (const StrictJson& entry : from.items(kMostStages + 1)) {
        list.push_back(static_cast<Int>(entry.integer(0, most)));
    }
    return list;
}

void expect_entries(const StrictJson& at, size_t count, size_t expected, const char* of) {
    if (count == expected) return;
    at.fail("has " + std::to_string(count) + " entries, but costs." + of + " has " +
            std::to_string(expected) + "; both must have the same number");
}

ShardMap read_shards(const StrictJson& from, size_t ranks) {
    ShardMap map{read_integers<int64_t>(from, kMostCount)};
    if (map.first_row.size() != ranks + 1) {
        from.fail("has " + std::to_string(map.first_row.size()) + " entries; expected " +
                  std::to_string(ranks + 1) +
                  ": the first row of every rank, then the number of rows");
    }
    if (map.first_row.front() != 0 || !std::is_sorted(map.first_row.begin(), map.first_row.end())) {
        from.fail("must start with 0 and must not decrease");
    }
    return map;
}

/// The entry of `names` with this name; `name_of` gives the name of an entry.
template <typename List, typename NameOf>
auto read_name(const StrictJson& from, const List& names, const NameOf& name_of) {
    const std::string text = from.text();
    for (const auto& candidate : names) {
        if (text == name_of(candidate)) return candidate;
    }
    from.fail("\"" + text.substr(0, 60) + "\" is not one of " + joined(names, ", ", name_of));
}

std::string_view name_of(CollectiveAlgorithm algorithm) {
    return std::find_if(kAlgorithms.begin(), kAlgorithms.end(),
                        [&](const auto& a) { return a.first == algorithm; })
        ->second;
}

json to_json(const CollectiveAlgorithms& algorithms) {
    json object = json::object();
    for (const auto& [key, member] : kCollectives) object[key] = name_of(algorithms.*member);
    return object;
}

CollectiveAlgorithms read_algorithms(const StrictJson& from) {
    from.only({"broadcast", "all_gather", "gather", "all_to_all"});
    CollectiveAlgorithms algorithms;
    for (const auto& [key, member] : kCollectives) {
        algorithms.*member =
            read_name(from.at(key), kAlgorithms, [](const auto& a) { return a.second; }).first;
    }
    return algorithms;
}

TableCosts read_table(const StrictJson& from) {
    from.only({"stage_ns", "rank_ns", "latency_ns", "bytes_per_ns", "local_bytes_per_ns",
               "algorithms", "slowdown_permille", "fixed_ns", "communication_order"});
    TableCosts costs;
    costs.stage_ns = read_costs(from.at("stage_ns"), kStageOps);
    costs.rank_ns = read_costs(from.at("rank_ns"), kRankOps);
    costs.latency_ns = from.at("latency_ns").integer(0, kMostNs);
    costs.bytes_per_ns = from.at("bytes_per_ns").number(0);
    costs.local_bytes_per_ns = from.at("local_bytes_per_ns").number(0);
    costs.algorithms = read_algorithms(from.at("algorithms"));
    costs.slowdown_permille = from.at("slowdown_permille").integer(0, kMostSlowdown);
    costs.fixed_ns = from.at("fixed_ns").integer(0, kMostNs);
    if (from.has("communication_order")) {  // older files were measured on hosts
        costs.communication = read_name(from.at("communication_order"), kCommunicationOrders,
                                        [](CommunicationOrder order) { return to_string(order); });
    }
    return costs;
}

StepSizes read_sizes(const StrictJson& from, size_t stages, size_t ranks) {
    from.only(
        {"tokens", "hidden", "dtype", "tied", "report_bytes", "stages", "shards", "tensor_ranks"});
    StepSizes sizes;
    sizes.tokens = from.at("tokens").integer(1, kMostCount);
    sizes.hidden = from.at("hidden").integer(1, kMostCount);
    sizes.dtype = read_name(from.at("dtype"), std::array{DType::fp32, DType::bf16},
                            [](DType d) { return d == DType::bf16 ? "bf16" : "fp32"; });
    sizes.tied = from.at("tied").boolean();
    sizes.report_bytes = from.at("report_bytes").integer(0, kMostBytes);
    if (from.has("tensor_ranks")) {
        const StrictJson tensor = from.at("tensor_ranks");
        sizes.tensor = static_cast<int>(tensor.integer(1, kMostTensorRanks));
        if (sizes.tokens % sizes.tensor != 0) {
            tensor.fail(std::to_string(sizes.tensor) + " does not divide the " +
                        std::to_string(sizes.tokens) + " of sizes.tokens");
        }
    }
    sizes.stages = read_list(from.at("stages"), kStageBytes);
    sizes.shards = read_list(from.at("shards"), kShardBytes);
    expect_entries(from.at("stages"), sizes.stages.size(), stages, "stage_ns");
    expect_entries(from.at("shards"), sizes.shards.size(), ranks, "rank_ns");
    return sizes;
}

ProfiledModel read_model(const StrictJson& from, size_t stages) {
    from.only({"layers", "hidden", "ffn_hidden", "heads", "seq_length", "micro_batch_size", "vocab",
               "layers_per_stage"});
    ProfiledModel model;
    model.layers = static_cast<int>(from.at("layers").integer(0, INT32_MAX));
    read_fields(from, kModel, model);
    const StrictJson split = from.at("layers_per_stage");
    model.layers_per_stage = read_integers<int>(split, INT32_MAX);
    expect_entries(split, model.layers_per_stage.size(), stages, "stage_ns");
    int64_t sum = 0;
    for (const int layers : model.layers_per_stage) sum += layers;
    if (sum != model.layers) {
        split.fail("adds up to " + std::to_string(sum) + " layers, but model.layers is " +
                   std::to_string(model.layers));
    }
    return model;
}

json to_json(const TableCosts& costs) {
    json object = {{"stage_ns", costs_to_json(costs.stage_ns, kStageOps)},
                   {"rank_ns", costs_to_json(costs.rank_ns, kRankOps)},
                   {"latency_ns", costs.latency_ns},
                   {"bytes_per_ns", costs.bytes_per_ns},
                   {"local_bytes_per_ns", costs.local_bytes_per_ns},
                   {"algorithms", to_json(costs.algorithms)},
                   {"slowdown_permille", costs.slowdown_permille},
                   {"fixed_ns", costs.fixed_ns}};
    if (costs.communication != CommunicationOrder::lanes) {
        object["communication_order"] = to_string(costs.communication);
    }
    return object;
}

json to_json(const Profile& p) {
    json model = fields_to_json(p.model, kModel);
    model["layers"] = p.model.layers;
    model["layers_per_stage"] = p.model.layers_per_stage;
    json derived = json::array();
    for (const Op op : p.derived) derived.push_back(traits(op).name);
    json links = json::array();
    for (const LinkSample& link : p.links) {
        links.push_back({{"what", to_string(link.what)},
                         {"ranks", link.ranks},
                         {"bytes", link.bytes},
                         {"ns", link.ns}});
    }
    const auto* barriers = std::find_if(kBarriers.begin(), kBarriers.end(),
                                        [&](const auto& b) { return b.first == p.barriers; });
    json file{{"vocabpipe_profile", kVersion},
              {"host", p.host},
              {"device", p.device},
              {"date", p.date},
              {"command", p.command},
              {"model", model},
              {"rank_of_stage", p.rank_of_stage},
              {"input_first_row", p.input.first_row},
              {"output_first_row", p.output.first_row},
              {"barriers", barriers->second},
              {"costs", to_json(p.costs)},
              {"derived", derived},
              {"sizes",
               {{"tokens", p.sizes.tokens},
                {"hidden", p.sizes.hidden},
                {"dtype", p.sizes.dtype == DType::bf16 ? "bf16" : "fp32"},
                {"tied", p.sizes.tied},
                {"report_bytes", p.sizes.report_bytes},
                {"stages", list_to_json(p.sizes.stages, kStageBytes)},
                {"shards", list_to_json(p.sizes.shards, kShardBytes)}}},
              {"persistent_bytes", list_to_json(p.persistent, kPersistentBytes)},
              {"links", links}};
    if (p.sizes.tensor > 1) file["sizes"]["tensor_ranks"] = p.sizes.tensor;
    if (p.cores > 0) file["cores"] = p.cores;
    return file;
}

}  // namespace

Recompute recomputed_in(const Profile& profile) {
    int64_t kept = 0;
    int64_t recomputed = 0;
    for (const StageBytes& stage : profile.sizes.stages) {
        kept += stage.saved;
        recomputed += stage.recomputed;
    }
    if (recomputed == 0) return Recompute::none;
    return kept == 0 ? Recompute::full : Recompute::selective;
}

double recompute_ns_per_layer(const Profile& profile, Recompute recompute,
                              double selective_elements) {
    if (recompute == Recompute::none) return 0;
    const bool measured = recomputed_in(profile) == recompute;
    double sum = 0;
    for (const TableCosts::OpCosts& stage : profile.costs.stage_ns) {
        sum += static_cast<double>(cost_in(stage, measured ? Op::R : Op::F));
    }
    const double rate = profile.costs.local_bytes_per_ns;
    const double mean = sum / std::max(profile.model.layers, 1);
    if (measured || recompute == Recompute::full || rate <= 0) return mean;
    const auto bytes = static_cast<double>(profile.sizes.tokens * size_of(profile.sizes.dtype));
    return std::min(mean, bytes * selective_elements / rate);
}

Profile parse_profile(std::string_view text, const std::string& name) {
    const StrictJson root = StrictJson::parse(text, name);
    root.measured_version("vocabpipe_profile", kVersion, "a profile",
                          "make one with vocabpipe profile or train_gpt --profile");
    root.only({"vocabpipe_profile", "host", "device", "date", "command", "model", "rank_of_stage",
               "input_first_row", "output_first_row", "barriers", "costs", "derived", "sizes",
               "persistent_bytes", "links", "cores"});
    Profile p;
    p.host = root.at("host").text();
    p.device = root.at("device").text();
    p.date = root.at("date").text();
    p.command = root.at("command").text();
    p.costs = read_table(root.at("costs"));
    const size_t stages = p.costs.stage_ns.size();
    const size_t ranks = p.costs.rank_ns.size();
    p.model = read_model(root.at("model"), stages);
    const StrictJson placement = root.at("rank_of_stage");
    p.rank_of_stage = read_integers<int>(placement, static_cast<int64_t>(ranks) - 1);
    expect_entries(placement, p.rank_of_stage.size(), stages, "stage_ns");
    p.input = read_shards(root.at("input_first_row"), ranks);
    p.output = read_shards(root.at("output_first_row"), ranks);
    p.barriers =
        read_name(root.at("barriers"), kBarriers, [](const auto& b) { return b.second; }).first;
    constexpr std::array kMayBeDerived{Op::B, Op::I, Op::W};
    for (const StrictJson& entry : root.at("derived").items(kMayBeDerived.size())) {
        p.derived.push_back(read_name(entry, kMayBeDerived, [](Op op) { return traits(op).name; }));
    }
    p.sizes = read_sizes(root.at("sizes"), stages, ranks);
    p.persistent = read_list(root.at("persistent_bytes"), kPersistentBytes);
    expect_entries(root.at("persistent_bytes"), p.persistent.size(), ranks, "rank_ns");
    for (const StrictJson& entry : root.at("links").items(kMostLinks)) {
        entry.only({"what", "ranks", "bytes", "ns"});
        LinkSample& link = p.links.emplace_back();
        link.what = read_name(entry.at("what"), kLinks, [](Do one) { return to_string(one); });
        link.ranks = static_cast<int>(entry.at("ranks").integer(2, INT32_MAX));
        link.bytes = entry.at("bytes").integer(0, kMostBytes);
        link.ns = entry.at("ns").integer(0, kMostNs);
    }
    // Set by hand only: times measured with shared cores contain the sharing already.
    if (root.has("cores")) p.cores = static_cast<int>(root.at("cores").integer(0, kMostCores));
    return p;
}

Profile read_profile(const std::string& path) {
    return parse_profile(read_whole_file(path, "check the name and the permissions"), path);
}

void write_profile(const std::string& path, const Profile& profile) {
    // Text from outside (host, command) may be in any encoding; the file is always valid JSON.
    const std::string text = json_text(to_json(profile), 1) + "\n";
    OutputFile file(path);
    file.write(text);
    file.publish();
}

}  // namespace vocabpipe
