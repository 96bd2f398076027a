"""A back end for omniidl: prints the repository id of each definition in the file itself, a line each."""
from omniidl import idlast, idlvisitor


class Visitor(idlvisitor.AstVisitor):
    def say(self, node):
        print(node.repoId())

    def visitAST(self, node):
        for each in node.declarations():
            if each.mainFile():
                each.accept(self)

    def visitModule(self, node):
        self.say(node)
        for each in node.definitions():
            each.accept(self)

    def visitInterface(self, node):
        self.say(node)
        for each in node.contents():
            if not isinstance(each, (idlast.Operation, idlast.Attribute)):
                each.accept(self)

    def visitTypedef(self, node):
        if node.constrType():
            node.aliasType().unalias().decl().accept(self)
        for each in node.declarators():
            self.say(each)

    def visitStruct(self, node):
        for each in node.members():
            if each.constrType():
                kind = each.memberType()
                kind.decl().accept(self)
        self.say(node)

    visitException = visitStruct

    def visitUnion(self, node):
        if node.constrType():
            node.switchType().decl().accept(self)
        for each in node.cases():
            if each.constrType():
                each.caseType().decl().accept(self)
        self.say(node)

    def visitEnum(self, node):
        self.say(node)

    visitConst = visitEnum


def run(tree, args):
    tree.accept(Visitor())
