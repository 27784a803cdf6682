// SPDX-License-Identifier: Apache-2.0
// Tables of `vocabpipe profile --overlap`: one versioned JSON object, every key required.
#include "vocabpipe/overlap_table.hpp"

#include "src/support/joined.hpp"
#include "src/support/json_text.hpp"
#include "src/support/output_file.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/support/strict_json.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace vocabpipe {

namespace {

using nlohmann::json;

constexpr int kTableVersion = 1;
constexpr int64_t kMostSize = int64_t{1} << 32;    // times 16 bytes or members: within 64 bits
constexpr int64_t kMostTimeNs = int64_t{1} << 40;  // 18 minutes
constexpr int64_t kMostMembers = 1 << 16;
constexpr int64_t kMostPiecesOfMember = 1 << 16;
constexpr size_t kMostShapes = 1 << 16;
constexpr size_t kMostCandidates = 64;
constexpr std::array kTableOps{OverlapOp::all_gather_gemm, OverlapOp::gemm_reduce_scatter,
                               OverlapOp::stream_in, OverlapOp::dispatch_gemm,
                               OverlapOp::gemm_combine};

OverlapOp read_op(const StrictJson& from) {
    const std::string text = from.text();
    for (const OverlapOp op : kTableOps) {
        if (text == to_string(op)) return op;
    }
    from.fail("\"" + text.substr(0, 60) + "\" is not one of " +
              joined(kTableOps, ", ", [](OverlapOp op) { return to_string(op); }));
}

std::vector<MeasuredOverlap::Candidate> read_candidates(const StrictJson& from) {
    std::vector<MeasuredOverlap::Candidate> list;
    for (const StrictJson& entry : from.items(kMostCandidates)) {
        entry.only({"pieces", "overlapped_ns"});
        const StrictJson pieces = entry.at("pieces");
        const MeasuredOverlap::Candidate one{
            .pieces = static_cast<int>(pieces.integer(1, kMostPiecesOfMember)),
            .overlapped_ns = entry.at("overlapped_ns").integer(1, kMostTimeNs)};
        if (!list.empty() && one.pieces <= list.back().pieces) {
            pieces.fail("must be above that of the entry before");
        }
        list.push_back(one);
    }
    if (list.empty()) from.fail("is empty; add at least one entry");
    return list;
}

MeasuredOverlap read_shape(const StrictJson& from) {
    from.only({"op", "rows", "inner", "columns", "compute_ns", "link_ns", "blocking_ns",
               "candidates", "pieces"});
    MeasuredOverlap m;
    m.op = read_op(from.at("op"));
    m.rows = from.at("rows").integer(1, kMostSize);
    m.inner = from.at("inner").integer(1, kMostSize);
    m.columns = from.at("columns").integer(1, kMostSize);
    m.compute_ns = from.at("compute_ns").integer(1, kMostTimeNs);
    m.link_ns = from.at("link_ns").integer(1, kMostTimeNs);
    m.blocking_ns = from.at("blocking_ns").integer(1, kMostTimeNs);
    m.candidates = read_candidates(from.at("candidates"));
    const StrictJson chosen = from.at("pieces");
    m.pieces = static_cast<int>(chosen.integer(1, kMostPiecesOfMember));
    const bool known = std::any_of(m.candidates.begin(), m.candidates.end(),
                                   [&](const auto& one) { return one.pieces == m.pieces; });
    if (!known) {
        chosen.fail(std::to_string(m.pieces) + " is not among the candidates; choose one of them");
    }
    return m;
}

TileRates read_rates(const StrictJson& from) {
    from.only({"flops_per_ns", "bytes_per_ns", "piece_ns"});
    constexpr double kLeast = 1e-9;  // above 0, and times stay finite
    constexpr double kMost = 1e9;
    return {.flops_per_ns = from.at("flops_per_ns").number(kLeast, kMost),
            .piece_ns = from.at("piece_ns").integer(0, kMostTimeNs),
            .link = {.bytes_per_ns = from.at("bytes_per_ns").number(kLeast, kMost)}};
}

json to_json(const MeasuredOverlap& m) {
    json candidates = json::array();
    for (const MeasuredOverlap::Candidate& one : m.candidates) {
        candidates.push_back({{"pieces", one.pieces}, {"overlapped_ns", one.overlapped_ns}});
    }
    return {{"op", to_string(m.op)},
            {"rows", m.rows},
            {"inner", m.inner},
            {"columns", m.columns},
            {"compute_ns", m.compute_ns},
            {"link_ns", m.link_ns},
            {"blocking_ns", m.blocking_ns},
            {"candidates", std::move(candidates)},
            {"pieces", m.pieces}};
}

}  // namespace

OverlapTable parse_overlap_table(std::string_view text, const std::string& name) {
    const StrictJson root = StrictJson::parse(text, name);
    root.measured_version("vocabpipe_overlap_table", kTableVersion, "a table of overlap",
                          "make one with vocabpipe profile --overlap");
    root.only({"vocabpipe_overlap_table", "host", "device", "date", "command", "members",
               "element_bytes", "rates", "shapes"});
    OverlapTable table;
    table.host = root.at("host").text();
    table.device = root.at("device").text();
    table.date = root.at("date").text();
    table.command = root.at("command").text();
    table.members = static_cast<int>(root.at("members").integer(2, kMostMembers));
    table.element_bytes = static_cast<int>(root.at("element_bytes").integer(1, 16));
    table.rates = read_rates(root.at("rates"));
    const StrictJson shapes = root.at("shapes");
    for (const StrictJson& entry : shapes.items(kMostShapes)) {
        MeasuredOverlap m = read_shape(entry);
        const bool twice =
            std::any_of(table.shapes.begin(), table.shapes.end(), [&](const auto& other) {
                return other.op == m.op && other.rows == m.rows && other.inner == m.inner &&
                       other.columns == m.columns;
            });
        if (twice) entry.fail("has op, rows, inner and columns of an earlier entry; remove one");
        table.shapes.push_back(std::move(m));
    }
    if (table.shapes.empty()) shapes.fail("is empty; add at least one entry");
    return table;
}

OverlapTable read_overlap_table(const std::string& path) {
    return parse_overlap_table(read_whole_file(path, "check the name and the permissions"), path);
}

void write_overlap_table(const std::string& path, const OverlapTable& table) {
    json shapes = json::array();
    for (const MeasuredOverlap& m : table.shapes) shapes.push_back(to_json(m));
    const json document{{"vocabpipe_overlap_table", kTableVersion},
                        {"host", table.host},
                        {"device", table.device},
                        {"date", table.date},
                        {"command", table.command},
                        {"members", table.members},
                        {"element_bytes", table.element_bytes},
                        {"rates",
                         {{"flops_per_ns", table.rates.flops_per_ns},
                          {"bytes_per_ns", table.rates.link.bytes_per_ns},
                          {"piece_ns", table.rates.piece_ns}}},
                        {"shapes", std::move(shapes)}};
    // Text from outside (host, command) may be in any encoding; the file is always valid JSON.
    OutputFile file(path);
    file.write(json_text(document, 1) + "\n");
    file.publish();
}

}  // namespace vocabpipe
