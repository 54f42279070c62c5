from setuptools import setup

setup(name="counting", version="1", packages=["counting"])
