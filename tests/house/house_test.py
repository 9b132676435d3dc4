#!/usr/bin/env python3
"""The rules of house.py catch what they should, and only that."""
import unittest

import cpp
import house


class Arrows(unittest.TestCase):
    def breaches(self, path, include):
        return list(house.arrows({path: f"// x\n#include {include}\n"}))

    def test_each_room_includes_to_its_right(self):
        self.assertEqual([], self.breaches("server/main.cc", '"engine/engine.h"'))
        self.assertEqual([], self.breaches("clients/cli/main.cc", '"serval/v1/generation.pb.h"'))
        self.assertEqual([], self.breaches("tests/clients/a.cc", '"clients/cli/command.h"'))

    def test_never_to_its_left(self):
        self.assertIn("kernels/a.h:2: kernels may not include engine", self.breaches("kernels/a.h", '"engine/step.h"')[0])
        self.assertTrue(self.breaches("engine/a.cc", '"models/load.h"'))
        self.assertTrue(self.breaches("models/a.cc", '"serval/v1/admin.pb.h"'))
        self.assertTrue(self.breaches("server/a.cc", '"clients/common/flags.h"'))
        self.assertTrue(self.breaches("clients/a.cc", '"kernels/check.h"'))
        self.assertTrue(self.breaches("engine/a.cc", '"tests/support/fake.h"'))

    def test_the_composition_root_is_the_one_exception(self):
        self.assertEqual([], self.breaches("server/main.cc", '"clients/openai/proxy.h"'))
        self.assertTrue(self.breaches("server/flags.cc", '"clients/openai/proxy.h"'))

    def test_libraries_have_their_rooms(self):
        self.assertEqual([], self.breaches("engine/a.cc", '"absl/status/status.h"'))
        self.assertEqual([], self.breaches("kernels/a.cc", "<vector>"))
        self.assertTrue(self.breaches("kernels/a.cc", '"absl/status/status.h"'))
        self.assertTrue(self.breaches("engine/a.cc", "<hwy/highway.h>"))
        self.assertTrue(self.breaches("models/a.cc", "<grpcpp/grpcpp.h>"))
        self.assertTrue(self.breaches("kernels/a.cc", "<gtest/gtest.h>"))

    def test_paths_start_at_the_root(self):
        self.assertTrue(self.breaches("kernels/gemm/a.cc", '"a.h"'))
        self.assertTrue(self.breaches("kernels/gemm/a.cc", '"../core.h"'))


class Sizes(unittest.TestCase):
    def test_files(self):
        self.assertEqual([], list(house.sizes({"a.h": "\n" * 150, "a.cc": "\n" * 400})))
        self.assertEqual(["a.h: 151 lines, at most 150"], list(house.sizes({"a.h": "\n" * 151})))
        self.assertEqual(1, len(list(house.sizes({"a.cc": "\n" * 401}))))
        self.assertEqual([], list(house.sizes({"a-inl.h": "\n" * 400})))

    def test_functions(self):
        self.assertEqual([], list(house.sizes({"a.cc": "void F() {\n" + "  x();\n" * 58 + "}\n"})))
        self.assertEqual(["a.cc:1: F has 61 lines, at most 60"],
                         list(house.sizes({"a.cc": "void F() {\n" + "  x();\n" * 59 + "}\n"})))


class Functions(unittest.TestCase):
    def names(self, text):
        return [(name, length) for name, _, length in cpp.functions(text)]

    def test_members_and_free_functions(self):
        text = ("namespace a {\nclass C : public B {\n  int f() const { return 1; }\n};\n"
                "C::C(int x) : x_(x) {\n}\n}  // namespace a\n")
        self.assertEqual([("f", 1), ("C::C", 2)], self.names(text))

    def test_what_is_inside_counts_for_its_function(self):
        self.assertEqual([("F", 5)], self.names("void F() {\n  auto g = [](int) {\n    h();\n  };\n}\n"))

    def test_braces_in_text_and_comments_do_not_count(self):
        self.assertEqual([("F", 4)], self.names("void F() {\n  p(\"{\"); // {\n  q('{'); /* { */\n}\n"))
        self.assertEqual([("F", 3)], self.names('void F() {\n  p(R"({{)");\n}\n'))

    def test_templates_and_tables(self):
        self.assertEqual([("G", 1)], self.names("template <class T, int N = f(1)>\nT G(T t) { return t; }\n"))
        self.assertEqual([], self.names("struct S {\n  int a;\n};\nconstexpr int kA[] = {1, 2};\n"))


class Words(unittest.TestCase):
    def breaches(self, line):
        return list(house.words({"a.cc": line + "\n"}))

    def test_promises(self):
        self.assertTrue(self.breaches("// TO" + "DO: later"))
        self.assertEqual([], self.breaches("// TO" + "DO(#12): with an address"))

    def test_tests_that_do_not_run(self):
        self.assertTrue(self.breaches("TEST(A, DIS" + "ABLED_B) {}"))
        self.assertEqual([], self.breaches("#define HWY_DISABLED_TARGETS 0"))

    def test_paths_of_one_machine(self):
        self.assertTrue(self.breaches('"/ho' + 'me/ann/x"'))
        self.assertTrue(self.breaches('"/ro' + 'ot/x"'))
        self.assertEqual([], self.breaches('"build/root/x"'))

    def test_dead_code(self):
        self.assertTrue(self.breaches("#if" + " 0"))
        self.assertEqual([], self.breaches("#if 0x10 == A"))


class HeadersAndLists(unittest.TestCase):
    def test_headers(self):
        self.assertEqual([], list(house.headers({"kernels/a.h": "// What.\n#pragma once\n"})))
        self.assertEqual(2, len(list(house.headers({"kernels/a.h": "#include <a>\n"}))))

    def test_listed(self):
        lists = {"kernels/CMakeLists.txt": "add_library(k\n  core.cc\n  gemm/a.cc)\n"}
        self.assertEqual([], list(house.listed({**lists, "kernels/core.cc": "", "kernels/gemm/a.cc": ""})))
        for name in ("../support/b.cc", "${CMAKE_SOURCE_DIR}/tests/support/b.cc"):
            tree = {"tests/engine/CMakeLists.txt": f"serval_test(t SOURCES {name})", "tests/support/b.cc": ""}
            self.assertEqual([], list(house.listed(tree)))
        self.assertEqual(["kernels/a.cc: no CMakeLists.txt lists it"], list(house.listed({**lists, "kernels/a.cc": ""})))


if __name__ == "__main__":
    unittest.main()
