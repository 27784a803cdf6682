// SPDX-License-Identifier: Apache-2.0
// .npy files, byte by byte as NumPy writes them, and what is not read of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "src/select/files/npy/npy_file.hpp"
#include "src/select/files/sample_input.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A file with this dictionary, and `data` behind it; `version` 1 to 3.
std::string npy(const std::string& dictionary, const std::string& data, int version = 1) {
    const std::string text = dictionary + "\n";
    std::string bytes = "\x93NUMPY";
    bytes += static_cast<char>(version);
    bytes += '\0';
    const auto length = static_cast<uint32_t>(text.size());
    bytes += version == 1 ? bytes_of({static_cast<uint16_t>(length)}) : bytes_of({length});
    return bytes + text + data;
}
std::string dictionary(const std::string& descr, const std::string& shape,
                       const std::string& fortran = "False") {
    return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

std::vector<double> numbers_in(const std::string& path) {
    NpyInput file(path);
    std::vector<double> numbers(static_cast<size_t>(file.header().elements()));
    file.read(0, std::span<double>(numbers));
    return numbers;
}

std::string refusal(const std::function<void()>& body) {
    try {
        body();
    } catch (const InputFileError& error) {
        return error.what();
    }
    return "accepted";
}

class Npy : public ::testing::Test {
protected:
    [[nodiscard]] std::string file(const std::string& bytes) const {
        write_file(folder_ / "x.npy", bytes);
        return folder_ / "x.npy";
    }
    std::string refused(const std::string& bytes) const {
        const std::string path = file(bytes);
        const std::string message = refusal([&] { NpyInput{path}; });
        EXPECT_THAT(message, StartsWith(path + ": "));
        EXPECT_THAT(message, ::testing::Not(HasSubstr("\n")));
        return message.substr(path.size() + 2);
    }
    const TempFolder folder_;
};

TEST_F(Npy, ReadsEveryTypeAndFormat) {
    const std::string shape = "(2,)";
    EXPECT_THAT(numbers_in(file(npy(dictionary("<f4", shape), bytes_of({1.5F, -2.0F})))),
                ElementsAre(1.5, -2));
    EXPECT_THAT(numbers_in(file(npy(dictionary("<f8", shape), bytes_of({1e300, 0.1}), 2))),
                ElementsAre(1e300, 0.1));
    EXPECT_THAT(numbers_in(file(npy(dictionary("<i4", shape), bytes_of<int32_t>({-7, 8}), 3))),
                ElementsAre(-7, 8));
    EXPECT_THAT(numbers_in(file(npy(dictionary("<i8", shape), bytes_of<int64_t>({-7, 1L << 40})))),
                ElementsAre(-7, 0x1p40));
    EXPECT_THAT(numbers_in(file(npy(dictionary("<u4", shape), bytes_of({4294967295U, 0U})))),
                ElementsAre(4294967295.0, 0));
    // One, the least number, and infinity.
    const std::string halves = bytes_of<uint16_t>({0xbc00, 0x0001, 0x7c00});
    EXPECT_THAT(numbers_in(file(npy(dictionary("<f2", "(3,)"), halves))),
                ElementsAre(-1, 0x1p-24, std::numeric_limits<double>::infinity()));
}

TEST_F(Npy, ReadsPartsAndShapes) {
    const std::string path = file(npy("{\"shape\": (2, 3), 'descr':'<f4','fortran_order':False}",
                                      bytes_of({0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 5.0F})));
    NpyInput input(path);
    EXPECT_THAT(input.header().shape, ElementsAre(2, 3));
    std::vector<float> part(2);
    input.read(3, std::span<float>(part));
    EXPECT_THAT(part, ElementsAre(3, 4));
    EXPECT_EQ(NpyInput(file(npy(dictionary("<f4", "()"), bytes_of({1.0F})))).header().elements(),
              1);
    EXPECT_EQ(NpyInput(file(npy(dictionary("<f4", "(0, 5)"), ""))).header().elements(), 0);
    // Both orders of one dimension are the same.
    EXPECT_THAT(numbers_in(file(npy(dictionary("<f4", "(1,)", "True"), bytes_of({1.0F})))),
                ElementsAre(1));
}

TEST_F(Npy, OfNoElementsMayHaveLengthsWhoseProductIsNoNumber) {
    const std::string shape = "(5, 1125899906842624, 137438953472, 0)";
    EXPECT_EQ(NpyInput(file(npy(dictionary("<f4", shape), ""))).header().elements(), 0);
}

TEST_F(Npy, WritesWhatItReads) {
    NpyOutput output(folder_ / "out.npy", NpyType::f4, {2, 2});
    const std::vector<float> numbers{1, 2, 3, 4};
    output.write(std::span<const float>(numbers));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out.npy"));
    output.publish();
    EXPECT_THAT(numbers_in(folder_ / "out.npy"), ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(read_file(folder_ / "out.npy").size() % 64, 16);
}

TEST_F(Npy, SaysWhatToDoWithOtherArrays) {
    const std::string eight(8, '\0');
    EXPECT_THAT(refused(npy(dictionary(">f4", "(2,)"), eight)),
                AllOf(HasSubstr("big-endian"), HasSubstr("astype('<f4')")));
    EXPECT_THAT(refused(npy(dictionary("|O", "(1,)"), eight)), HasSubstr("Python objects"));
    EXPECT_THAT(refused(npy(dictionary("<f4", "(1, 2)", "True"), eight)),
                AllOf(HasSubstr("Fortran order"), HasSubstr("np.ascontiguousarray(x)")));
    EXPECT_THAT(refused(npy(dictionary("<c8", "(1,)"), eight)),
                AllOf(HasSubstr("<c8"), HasSubstr("f2, f4, f8, i4, i8 and u4 are read")));
    EXPECT_THAT(
        refused(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", eight)),
        HasSubstr("several fields"));
}

TEST_F(Npy, RefusesWhatIsDamaged) {
    const std::string good = npy(dictionary("<f4", "(2,)"), bytes_of({1.0F, 2.0F}));
    for (size_t length = 0; length < good.size(); ++length) {
        SCOPED_TRACE(length);
        EXPECT_NE(refused(good.substr(0, length)), "accepted");
    }
    EXPECT_THAT(refused(good + "x"), HasSubstr("has 9 bytes of elements"));
    EXPECT_THAT(refused(npy(dictionary("<f4", "(2,)"), "", 4)), HasSubstr("format 4.0"));
    EXPECT_THAT(refused(npy(dictionary("<f4", "(4611686018427387904, 4)"), "")),
                HasSubstr("beyond any file"));
    EXPECT_THAT(refused(npy(dictionary("<f4", "(99999999999999999999,)"), "")), HasSubstr("shape"));
    EXPECT_THAT(refused(npy(dictionary("<f4", "(-1,)"), "")), HasSubstr("shape"));
    EXPECT_THAT(refused(npy(dictionary("<f4", "2"), "")), HasSubstr("no '('"));
    EXPECT_THAT(refused(npy(dictionary("<f4", "(2,)", "0"), "")), HasSubstr("truth value"));
    EXPECT_THAT(refused(npy("{'descr': '<f4', 'shape': (0,)}", "")), HasSubstr("fortran_order"));
    EXPECT_THAT(refused(npy("{'fortran_order': False, 'shape': (0,)}", "")), HasSubstr("descr"));
    EXPECT_THAT(refused(npy("{'descr': '<f4', 'fortran_order': False}", "")), HasSubstr("shape"));
    EXPECT_THAT(refused(npy("{'descr': '<f4', 'descr': '<f4'}", "")), HasSubstr("twice"));
    EXPECT_THAT(refused(npy("{'other': 3}", "")), HasSubstr("unknown key"));
    EXPECT_THAT(refused(npy(dictionary("<f4", "(0,)") + " more", "")), HasSubstr("text after"));
    EXPECT_THAT(refused(npy("{", "")), HasSubstr("quoted"));
}

TEST_F(Npy, GivesUtilitiesInFixedPoint) {
    const auto utilities_of = [&](const std::string& bytes) {
        const auto input = open_utility(file(bytes));
        EXPECT_EQ(input->kind(), "imported");
        EXPECT_EQ(input->corpus().data, "");
        std::vector<int32_t> utilities(static_cast<size_t>(input->samples()));
        input->read(0, utilities);
        return utilities;
    };
    EXPECT_THAT(utilities_of(npy(dictionary("<f4", "(3,)"), bytes_of({0.0F, 1.0F, 0.5F}))),
                ElementsAre(0, 1 << 20, 1 << 19));
    EXPECT_THAT(utilities_of(npy(dictionary("<f8", "(3,)"),
                                 bytes_of({1.5 * 0x1p-20, 2.5 * 0x1p-20, 2048 - 0x1p-20}))),
                ElementsAre(2, 2, INT32_MAX));
    EXPECT_THAT(utilities_of(npy(dictionary("<i8", "(2,)"), bytes_of<int64_t>({3, 0}))),
                ElementsAre(3 << 20, 0));
}

TEST_F(Npy, RefusesUtilitiesThatAreNone) {
    const auto refused_utility = [&](double number) {
        const std::string path = file(npy(dictionary("<f8", "(3,)"), bytes_of({1.0, number, 1.0})));
        return refusal([&] {
            std::vector<int32_t> utilities(2);
            open_utility(path)->read(1, utilities);
        });
    };
    EXPECT_THAT(refused_utility(-0.5), HasSubstr("x.npy: row 1: utility is -0.5; it must be"));
    EXPECT_THAT(refused_utility(NAN), HasSubstr("nan"));
    EXPECT_THAT(refused_utility(INFINITY), HasSubstr("inf"));
    EXPECT_THAT(refused_utility(2048), HasSubstr("divide"));
    EXPECT_THAT(refusal([&] {
                    (void)open_utility(file(npy(dictionary("<f8", "(1, 1)"), bytes_of({1.0}))));
                }),
                HasSubstr("one number per sample"));
    EXPECT_THAT(refusal([&] { (void)open_utility(file(npy(dictionary("<f8", "(0,)"), ""))); }),
                HasSubstr("no samples"));
}

TEST_F(Npy, GivesEmbeddings) {
    const auto input =
        open_embedding(file(npy(dictionary("<f8", "(2, 2)"), bytes_of({1.0, 2.0, 3.0, 4.0}))));
    EXPECT_EQ(input->samples(), 2);
    EXPECT_EQ(input->width(), 2);
    std::vector<float> row(2);
    input->read(1, row);
    EXPECT_THAT(row, ElementsAre(3, 4));
}

TEST_F(Npy, RefusesEmbeddingsThatAreNone) {
    for (const double bad : {double{NAN}, double{INFINITY}, 1e300}) {
        const std::string path =
            file(npy(dictionary("<f8", "(2, 2)"), bytes_of({1.0, 2.0, 3.0, bad})));
        EXPECT_THAT(refusal([&] {
                        std::vector<float> rows(4);
                        open_embedding(path)->read(0, rows);
                    }),
                    HasSubstr("x.npy: row 1: embedding has "));
    }
    EXPECT_THAT(refusal([&] {
                    (void)open_embedding(file(npy(dictionary("<f8", "(1,)"), bytes_of({1.0}))));
                }),
                HasSubstr("rows of at least one number"));
    EXPECT_THAT(refusal([&] { (void)open_embedding(file(npy(dictionary("<f8", "(1, 0)"), ""))); }),
                HasSubstr("rows of at least one number"));
}

}  // namespace
}  // namespace vocabpipe::testing
