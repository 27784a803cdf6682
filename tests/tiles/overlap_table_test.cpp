// SPDX-License-Identifier: Apache-2.0
// Tables of measured overlap: they come back as they were written, what does not fit is refused
// with its place, and what is asked of them.
#include "vocabpipe/overlap_table.hpp"

#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

OverlapTable some_table() {
    OverlapTable table{.host = "node \"7\"",
                       .device = "host, 1 thread per rank",
                       .date = "2024-08-17",
                       .command = "vocabpipe profile --overlap t.json",
                       .members = 4};
    table.rates = {.flops_per_ns = 12.5, .piece_ns = 300, .link = {.bytes_per_ns = 1.0 / 3}};
    table.shapes = {{.op = OverlapOp::all_gather_gemm,
                     .rows = 1024,
                     .inner = 256,
                     .columns = 192,
                     .compute_ns = 4000,
                     .link_ns = 1000,
                     .blocking_ns = 5000,
                     .candidates = {{1, 4500}, {2, 4300}, {4, 4600}},
                     .pieces = 2},
                    {.op = OverlapOp::all_gather_gemm,
                     .rows = 2048,
                     .inner = 256,
                     .columns = 192,
                     .compute_ns = 8000,
                     .link_ns = 2000,
                     .blocking_ns = 10000,
                     .candidates = {{1, 9000}, {2, 8500}, {8, 8400}},
                     .pieces = 8},
                    {.op = OverlapOp::stream_in,
                     .rows = 1024,
                     .inner = 256,
                     .columns = 1000,
                     .compute_ns = 16000,
                     .link_ns = 500,
                     .blocking_ns = 16500,
                     .candidates = {{1, 16600}, {16, 17000}},
                     .pieces = 1},
                    {.op = OverlapOp::dispatch_gemm,
                     .rows = 512,
                     .inner = 256,
                     .columns = 128,
                     .compute_ns = 3000,
                     .link_ns = 900,
                     .blocking_ns = 3900,
                     .candidates = {{1, 3500}, {2, 3400}},
                     .pieces = 2},
                    {.op = OverlapOp::gemm_combine,
                     .rows = 512,
                     .inner = 128,
                     .columns = 256,
                     .compute_ns = 3000,
                     .link_ns = 900,
                     .blocking_ns = 3900,
                     .candidates = {{1, 3900}, {4, 3300}},
                     .pieces = 4}};
    return table;
}

std::string text_of_table() {
    const auto path = std::filesystem::path(::testing::TempDir()) / "some_overlap.json";
    write_overlap_table(path.string(), some_table());
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

std::string refusal_of(const std::string& text) {
    try {
        (void)parse_overlap_table(text, "t.json");
    } catch (const InputFileError& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::input_file);
        return error.what();
    }
    return "accepted";
}

std::string refusal_after(const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json document = nlohmann::json::parse(text_of_table());
    change(document);
    return refusal_of(document.dump());
}

TEST(OverlapTable, ComesBackAsItWasWritten) {
    const auto path = std::filesystem::path(::testing::TempDir()) / "overlap.json";
    const OverlapTable written = some_table();
    write_overlap_table(path.string(), written);
    const OverlapTable read = read_overlap_table(path.string());
    EXPECT_EQ(read.host, written.host);
    EXPECT_EQ(read.device, written.device);
    EXPECT_EQ(read.date, written.date);
    EXPECT_EQ(read.command, written.command);
    EXPECT_EQ(read.members, written.members);
    EXPECT_EQ(read.element_bytes, written.element_bytes);
    EXPECT_EQ(read.rates.flops_per_ns, written.rates.flops_per_ns);
    EXPECT_EQ(read.rates.link.bytes_per_ns, written.rates.link.bytes_per_ns);
    EXPECT_EQ(read.rates.piece_ns, written.rates.piece_ns);
    EXPECT_EQ(read.shapes, written.shapes);
}

TEST(OverlapTable, RefusesWhatDoesNotFitWithItsPlace) {
    EXPECT_THAT(refusal_of("{"), HasSubstr("t.json"));
    EXPECT_THAT(refusal_of("{}"), HasSubstr("vocabpipe profile --overlap"));
    EXPECT_THAT(refusal_of(R"({"vocabpipe_profile": 1})"), HasSubstr("is not a table of overlap"));
    const std::string text = text_of_table();
    for (const size_t size : {text.size() / 3, text.size() / 2, text.size() - 3}) {
        EXPECT_THAT(refusal_of(text.substr(0, size)), HasSubstr("t.json"));
    }
    struct Row {
        const char* says;
        std::function<void(nlohmann::json&)> change;
    };
    using json = nlohmann::json;
    const std::vector<Row> rows{
        {"version 2 is not supported", [](json& d) { d["vocabpipe_overlap_table"] = 2; }},
        {"host", [](json& d) { d.erase("host"); }},
        {"hosts", [](json& d) { d["hosts"] = "x"; }},
        {"members", [](json& d) { d["members"] = 1; }},
        {"members", [](json& d) { d["members"] = 2.5; }},
        {"element_bytes", [](json& d) { d["element_bytes"] = 0; }},
        {"rates.flops_per_ns", [](json& d) { d["rates"]["flops_per_ns"] = 0; }},
        {"rates.bytes_per_ns", [](json& d) { d["rates"]["bytes_per_ns"] = -1; }},
        {"rates.piece_ns", [](json& d) { d["rates"]["piece_ns"] = -1; }},
        {"rates", [](json& d) { d["rates"]["latency"] = 1; }},
        {"shapes: is empty", [](json& d) { d["shapes"] = json::array(); }},
        {"shapes", [](json& d) { d["shapes"] = "none"; }},
        {"shapes[1].op: \"hop\" is not one of", [](json& d) { d["shapes"][1]["op"] = "hop"; }},
        {"shapes[0].rows", [](json& d) { d["shapes"][0]["rows"] = 0; }},
        {"shapes[0].columns", [](json& d) { d["shapes"][0]["columns"] = int64_t{1} << 40; }},
        {"shapes[2]: \"compute_ns\" is missing",
         [](json& d) { d["shapes"][2].erase("compute_ns"); }},
        {"shapes[0].blocking_ns", [](json& d) { d["shapes"][0]["blocking_ns"] = -5; }},
        {"shapes[0].candidates: is empty",
         [](json& d) { d["shapes"][0]["candidates"] = json::array(); }},
        {"shapes[0].candidates[1].pieces: must be above",
         [](json& d) { d["shapes"][0]["candidates"][1]["pieces"] = 1; }},
        {"shapes[0].candidates[0].overlapped_ns",
         [](json& d) { d["shapes"][0]["candidates"][0]["overlapped_ns"] = "fast"; }},
        {"shapes[0].pieces: 3 is not among the candidates",
         [](json& d) { d["shapes"][0]["pieces"] = 3; }},
        {"shapes[1]: has op, rows, inner and columns of an earlier entry",
         [](json& d) { d["shapes"][1]["rows"] = 1024; }},
    };
    for (const Row& row : rows) {
        EXPECT_THAT(refusal_after(row.change), AllOf(HasSubstr("t.json: "), HasSubstr(row.says)));
    }
    EXPECT_THROW((void)read_overlap_table("/nonexistent/t.json"), InputFileError);
}

TEST(OverlapTable, ChoosesTheFastestAndOneWhereOverlapDoesNotPay) {
    MeasuredOverlap m{.blocking_ns = 100, .candidates = {{1, 99}, {2, 90}, {4, 90}, {8, 95}}};
    EXPECT_EQ(best_pieces(m), 2) << "the smallest of the fastest";
    m.candidates[0].overlapped_ns = 80;
    EXPECT_EQ(best_pieces(m), 1);
    m = {.blocking_ns = 100, .candidates = {{1, 130}, {2, 110}, {4, 100}}};
    EXPECT_EQ(best_pieces(m), 1) << "no faster than blocking";
}

TEST(OverlapTable, GivesPiecesOfTheShapeOrOfTheNextLargerOne) {
    const OverlapTable table = some_table();
    const TileShape shape{
        .op = OverlapOp::all_gather_gemm, .rows = 1024, .inner = 256, .columns = 192, .members = 4};
    EXPECT_EQ(pieces_for(table, shape), 2);
    TileShape other = shape;
    other.rows = 2048;
    EXPECT_EQ(pieces_for(table, other), 8);
    other.rows = 1025;  // the second one is the only one with room for it
    EXPECT_EQ(pieces_for(table, other), 8);
    other = shape;
    other.columns = 10;  // both have: the smaller one
    EXPECT_EQ(pieces_for(table, other), 2);
    other = {.op = OverlapOp::stream_in, .rows = 1000, .inner = 200, .columns = 900, .members = 1};
    EXPECT_EQ(pieces_for(table, other), 1);
}

TEST(OverlapTable, ComputesPiecesOfWhatWasNotMeasured) {
    const OverlapTable table = some_table();
    const TileShape shape{
        .op = OverlapOp::all_gather_gemm, .rows = 4096, .inner = 256, .columns = 192, .members = 4};
    std::vector<TileShape> others(4, shape);
    others[1].rows = 1024;
    others[1].members = 2;
    others[2].rows = 1024;
    others[2].element_bytes = 2;
    others[3].op = OverlapOp::gemm_reduce_scatter;
    for (const TileShape& one : others) {
        EXPECT_EQ(pieces_for(table, one), choose_tiles(one, table.rates).pieces);
    }
    const TileShape stream{
        .op = OverlapOp::stream_in, .rows = 4096, .inner = 256, .columns = 1000, .members = 4};
    TileShape alone = stream;
    alone.members = 1;
    EXPECT_EQ(pieces_for(table, stream), choose_tiles(alone, table.rates).pieces);
}

TEST(OverlapTable, RatesAreThoseOfAllShapesTogether) {
    OverlapTable table{.members = 2, .element_bytes = 4};
    table.shapes = {{.op = OverlapOp::all_gather_gemm,
                     .rows = 1024,
                     .inner = 64,
                     .columns = 32,
                     .compute_ns = 1000,
                     .link_ns = 500,
                     .blocking_ns = 1500,
                     .candidates = {{1, 1100}, {4, 1700}}},
                    {.op = OverlapOp::gemm_reduce_scatter,
                     .rows = 1024,
                     .inner = 32,
                     .columns = 64,
                     .compute_ns = 3000,
                     .link_ns = 1500,
                     .blocking_ns = 4500,
                     .candidates = {{1, 3100}, {4, 3700}}}};
    const TileRates rates = fit_rates(table);
    // Two products of 1024 x 64 x 32 in 4000 ns; twice 512 rows of 64 floats in 2000 ns.
    EXPECT_DOUBLE_EQ(rates.flops_per_ns, 2.0 * 2 * 1024 * 64 * 32 / 4000);
    EXPECT_DOUBLE_EQ(rates.link.bytes_per_ns, 2.0 * 512 * 64 * 4 / 2000);
    EXPECT_EQ(rates.piece_ns, 200) << "600 ns longer for three products more; own rows are one";
    EXPECT_THROW((void)fit_rates({}), UsageError);
}

}  // namespace
}  // namespace vocabpipe
