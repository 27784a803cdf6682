// SPDX-License-Identifier: Apache-2.0
// .npy files, byte by byte as NumPy writes them, and what is not read of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "src/select/files/npy/header.hpp"
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
using ::testing::StrEq;

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

// The elements begin at a multiple of 64, behind spaces and a newline.
TEST_F(Npy, BeginsAsNumPyWritesIt) {
    const auto begin = [](const std::string& text, uint16_t length) {
        std::string padded = text;
        padded.resize(length - size_t{1}, ' ');
        return std::string("\x93NUMPY\1\0", 8) + bytes_of<uint16_t>({length}) + padded + "\n";
    };
    const auto written = [](NpyType type, const std::vector<int64_t>& shape) {
        return npy_header(type, shape);
    };
    EXPECT_EQ(written(NpyType::f4, {2, 3}), begin(dictionary("<f4", "(2, 3)"), 118));
    EXPECT_EQ(written(NpyType::i8, {7}), begin(dictionary("<i8", "(7,)"), 118));
    EXPECT_EQ(written(NpyType::f2, {}), begin(dictionary("<f2", "()"), 118));
    // A dictionary of 117 bytes just fits; one of 118 takes 64 more.
    constexpr int64_t kLong = 1'000'000'000'000'000'000;
    const std::string lengths = "(1000000000000000000, 1000000000000000000, 100000000000000, ";
    const std::string most = dictionary("<f8", lengths + "123)");
    EXPECT_EQ(most.size(), 117U);
    EXPECT_EQ(written(NpyType::f8, {kLong, kLong, kLong / 10'000, 123}), begin(most, 118));
    EXPECT_EQ(written(NpyType::f8, {kLong, kLong, kLong / 10'000, 1234}),
              begin(dictionary("<f8", lengths + "1234)"), 182));
}

// Arrays are read a MiB at a time, utilities 65536 at a time.
TEST_F(Npy, MayBeLargerThanTheBlocksThatAreRead) {
    constexpr int32_t kCount = (1 << 18) + 5;
    std::vector<int32_t> numbers(kCount);
    for (int32_t i = 0; i < kCount; ++i) numbers[static_cast<size_t>(i)] = i % 2039;
    NpyOutput output(folder_ / "large.npy", NpyType::i4, {kCount});
    output.write(std::span<const int32_t>(numbers));
    output.publish();
    const std::vector<double> read = numbers_in(folder_ / "large.npy");
    EXPECT_TRUE(std::ranges::equal(read, numbers));
    std::vector<int32_t> utilities(kCount - 3);
    open_utility(folder_ / "large.npy")->read(3, utilities);
    for (size_t i = 0; i < utilities.size(); ++i) {
        ASSERT_EQ(utilities[i], numbers[i + 3] << 20) << i;
    }
    std::vector<float> rows(kCount);
    NpyInput(folder_ / "large.npy").read(0, std::span<float>(rows));
    EXPECT_TRUE(std::ranges::equal(rows, numbers));
}

TEST_F(Npy, SaysWhatToDoWithOtherArrays) {
    const std::string eight(8, '\0');
    const std::string convert = "; save it as such: np.save(FILE, x.astype('<f4'))";
    EXPECT_EQ(refused(npy(dictionary(">f4", "(2,)"), eight)),
              "has big-endian elements, >f4" + convert);
    for (const char* objects : {"|O", "O", "|O8"}) {
        EXPECT_EQ(refused(npy(dictionary(objects, "(1,)"), eight)),
                  "holds Python objects, which are not read" + convert);
    }
    EXPECT_EQ(refused(npy(dictionary("<f4", "(1, 2)", "True"), eight)),
              "is in Fortran order; save it in C order: np.save(FILE, np.ascontiguousarray(x))");
    EXPECT_EQ(refused(npy(dictionary("<c8", "(1,)"), eight)),
              "has elements <c8; f2, f4, f8, i4, i8 and u4 are read" + convert);
    EXPECT_EQ(
        refused(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", eight)),
        "has records of several fields; save one field: np.save(FILE, x['FIELD'])");
}

TEST_F(Npy, RefusesWhatIsDamaged) {
    const std::string good = npy(dictionary("<f4", "(2,)"), bytes_of({1.0F, 2.0F}));
    const std::string cut = "; the file is damaged or was cut off";
    const size_t begin = good.size() - 8;
    for (size_t length = 0; length < good.size(); ++length) {
        EXPECT_EQ(refused(good.substr(0, length)),
                  length < 10      ? "is no .npy file: it does not begin as one"
                  : length < begin ? "ends within its header"
                                   : "has " + std::to_string(length - begin) +
                                         " bytes of elements, but shape [2] of <f4 takes 8" + cut)
            << length;
    }
    EXPECT_EQ(refused(good + "x"), "has 9 bytes of elements, but shape [2] of <f4 takes 8" + cut);
    // Formats with four bytes of length are cut, too.
    const std::string second = npy(dictionary("<f4", "(2,)"), bytes_of({1.0F, 2.0F}), 2);
    for (size_t length = 10; length < second.size() - 8; ++length) {
        EXPECT_EQ(refused(second.substr(0, length)), "ends within its header") << length;
    }
    for (const int version : {0, 4}) {
        EXPECT_EQ(refused(npy(dictionary("<f4", "(2,)"), "", version)),
                  "is of .npy format " + std::to_string(version) + ".0; 1.0, 2.0 and 3.0 are read");
    }
    std::string minor = good;
    minor[7] = '\1';
    EXPECT_EQ(refused(minor), "is of .npy format 1.1; 1.0, 2.0 and 3.0 are read");
    std::string other = good;
    other[0] = 'x';
    EXPECT_EQ(refused(other), "is no .npy file: it does not begin as one");
    for (const char* shape :
         {"(4611686018427387904, 4)", "(4611686018427387904,)", "(2305843009213693952,)"}) {
        EXPECT_THAT(refused(npy(dictionary("<f4", shape), "")),
                    AllOf(StartsWith("has 0 bytes of elements, but shape ["),
                          HasSubstr("] of <f4 is beyond any file" + cut)));
    }
    // The most that a number of bytes can be is not beyond.
    EXPECT_EQ(refused(npy(dictionary("<f4", "(2305843009213693951,)"), "")),
              "has 0 bytes of elements, but shape [2305843009213693951] of <f4 takes "
              "9223372036854775804" +
                  cut);
    const auto header = [](const std::string& what) {
        return "header: " + what + "; the file is no .npy, or damaged";
    };
    const std::string no_number = header("shape has no number where one is due");
    EXPECT_EQ(refused(npy(dictionary("<f4", "(99999999999999999999,)"), "")), no_number);
    EXPECT_EQ(refused(npy(dictionary("<f4", "(-1,)"), "")), no_number);
    EXPECT_EQ(refused(npy(dictionary("<f4", "(2,,)"), "")), no_number);
    EXPECT_EQ(refused(npy(dictionary("<f4", "(2 3)"), "")), header("no ')' where one is due"));
    EXPECT_EQ(refused(npy(dictionary("<f4", "2"), "")), header("no '(' where one is due"));
    EXPECT_EQ(refused(npy(dictionary("<f4", "(2,)", "0"), "")),
              header("fortran_order is no truth value"));
    EXPECT_EQ(refused(npy("{'descr': '<f4', 'shape': (0,)}", "")), header("no 'fortran_order'"));
    EXPECT_EQ(refused(npy("{'fortran_order': False, 'shape': (0,)}", "")), header("no 'descr'"));
    EXPECT_EQ(refused(npy("{'descr': '<f4', 'fortran_order': False}", "")), header("no 'shape'"));
    EXPECT_EQ(refused(npy("{'descr': '<f4', 'descr': '<f4'}", "")), header("a key is given twice"));
    EXPECT_EQ(refused(npy("{'other': 3}", "")), header("unknown key 'other'"));
    EXPECT_EQ(refused(npy("{'descr' '<f4'}", "")), header("no ':' where one is due"));
    EXPECT_EQ(refused(npy("{'descr': '<f4' 'shape': (0,)}", "")),
              header("no '}' where one is due"));
    EXPECT_EQ(refused(npy("'descr': '<f4'", "")), header("no '{' where one is due"));
    EXPECT_EQ(refused(npy(dictionary("<f4", "(0,)") + " more", "")),
              header("text after the dictionary"));
    for (const char* unquoted : {"{", "{'descr", "{'descr\": 3", "{descr: '<f4'}"}) {
        EXPECT_EQ(refused(npy(unquoted, "")), header("no quoted text where one is due"))
            << unquoted;
    }
}

TEST_F(Npy, HasAHeaderOfAtMost64KiB) {
    const std::string text = dictionary("<f4", "(1,)");
    const auto with_header = [&](size_t bytes, int version) {
        return npy(text + std::string(bytes - (version == 1 ? 10 : 12) - text.size() - 1, ' '),
                   bytes_of({1.0F}), version);
    };
    for (const int version : {2, 3}) {
        EXPECT_THAT(numbers_in(file(with_header(kMostNpyHeaderBytes, version))), ElementsAre(1));
        EXPECT_EQ(refused(with_header(kMostNpyHeaderBytes + 1, version)),
                  "has a header of " + std::to_string(kMostNpyHeaderBytes - 11) +
                      " bytes; arrays of numbers have short ones");
    }
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
    const auto place = folder_ / "x.npy: row 1: utility is ";
    const std::string limits = "; it must be at least 0 and below 2048";
    const std::string divide = ": divide all of them by one number";
    EXPECT_EQ(refused_utility(-0.5), place + "-0.5" + limits);
    EXPECT_EQ(refused_utility(NAN), place + "nan" + limits);
    EXPECT_EQ(refused_utility(INFINITY), place + "inf" + limits + divide);
    EXPECT_EQ(refused_utility(2048), place + "2048" + limits + divide);
    EXPECT_EQ(refused_utility(0), "accepted");
    EXPECT_THAT(refusal([&] {
                    (void)open_utility(file(npy(dictionary("<f8", "(1, 1)"), bytes_of({1.0}))));
                }),
                StrEq(folder_ / "x.npy: has shape [1, 1]; utilities are one number per sample"));
    EXPECT_THAT(refusal([&] { (void)open_utility(file(npy(dictionary("<f8", "(0,)"), ""))); }),
                StrEq(folder_ / "x.npy: has no samples"));
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
