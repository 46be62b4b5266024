"""metakel inside other libraries: adapters that pass the tests of their hosts."""
